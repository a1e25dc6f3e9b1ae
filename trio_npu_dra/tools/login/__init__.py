"""How a person gets in to a cluster: kubeconfigs, credential plugins, the system's authorities.

Only commands for people may run plugins; the daemon must not load this room.
"""

__all__ = ["access", "credential_plugin", "login"]
