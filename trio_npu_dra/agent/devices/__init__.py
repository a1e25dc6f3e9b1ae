"""Offers as devices of the node's pool, with their taints, counters and shares.

It speaks to the API server only to learn which of these it keeps, and knows no kubelet and no
library.
"""

__all__ = ["build", "features", "npu_status", "shares", "taints"]
