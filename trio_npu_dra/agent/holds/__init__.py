"""Who holds which chips of this node: one rule of exclusion, and one ledger on disk.

It knows chips by their device nodes, and neither the kubelet nor the API server.
"""

__all__ = ["availability", "encoding", "entry", "files", "hold", "ledger", "owner"]
