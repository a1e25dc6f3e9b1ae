"""What operators see of the daemon: log lines and health probes."""
