"""What operators and their tools see of the daemon: metrics and probes.

It reads the facts of the other packages and changes none. Prometheus stays here.
"""

__all__ = [
    "catalog",
    "latency",
    "metrics",
    "pages",
    "self_check",
    "state",
]
