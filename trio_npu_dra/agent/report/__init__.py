"""Reports on chips: by Events, labels of the Node, the status of claims, and the kubelet's health.

It changes no chip and no claim.
"""

__all__ = [
    "claim_status",
    "claim_status_writer",
    "device_health",
    "events",
    "labelled_node",
    "news",
    "node_labels",
]
