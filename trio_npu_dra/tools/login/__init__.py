"""How a person logs in to a cluster: kubeconfigs, credential plugins, certificate authorities.

Only commands for people may run plugins; the daemon must not load this room.
"""

__all__ = ["access", "credential_plugin", "login"]
