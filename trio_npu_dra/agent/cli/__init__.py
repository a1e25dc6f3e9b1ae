"""The commands that the DaemonSet runs."""
