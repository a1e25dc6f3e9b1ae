"""Errors, files, time and tasks, as everybody here uses them."""
