"""What the daemon shows to operators and their tools: log lines, metrics and probes."""
