"""libdcmi.so, the vendor's device management library: the only package with ctypes.

It knows no Board. Others import from the modules below, most only from `errors` and `types`.
"""

__all__ = ["client", "errors", "job", "roce_port", "types", "worker"]
