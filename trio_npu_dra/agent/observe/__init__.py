"""What operators and their tools see of the daemon: metrics and probes.

It reads the other rooms' facts and changes none. Prometheus stays here. Its face is a list of
modules, as the daemon loads the metrics after its start.
"""

__all__ = [
    "catalog",
    "inbox",
    "latency",
    "metrics",
    "pages",
    "self_check",
    "state",
]
