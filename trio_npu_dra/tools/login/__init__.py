"""How a person logs in to a cluster: credential plugins, and the system's certificate authorities.

Only `kubectl npu` may run plugins; the daemon must not load this room.
"""

__all__ = ["credential_plugin", "login"]
