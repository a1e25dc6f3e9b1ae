"""What operators and their tools see of the daemon: metrics and probes.

It reads the other rooms' facts and changes none. Prometheus stays here.
"""

__all__ = [
    "catalog",
    "latency",
    "metrics",
    "pages",
    "self_check",
    "state",
]
