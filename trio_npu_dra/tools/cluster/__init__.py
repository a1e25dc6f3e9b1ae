"""The cluster as its API objects show it: which devices there are, who holds them, why a pod waits.

It needs the extra `cli`, so only `kubectl npu` loads it. It reads and never writes, and only
`gather` asks the API server. Other packages import from the modules in `__all__`.
"""

__all__ = [
    "cel",
    "explain",
    "fleet",
    "gather",
    "inventory",
    "objects",
    "said",
]
