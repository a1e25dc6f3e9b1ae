"""The cluster as its API objects tell it: who has which devices, and why a pod waits for some."""
