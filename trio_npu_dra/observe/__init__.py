"""What operators see of the daemon without asking it: log lines, metrics and probes."""
