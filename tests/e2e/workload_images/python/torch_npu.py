"""Importing it is what counts."""
