"""Reports on chips: by Events, labels of the Node, the status of claims, and the kubelet's health.

It changes no chip and no claim. Its face is a list of modules: the daemon needs `device_health` at
its start, what labels the Node before the first slice, and the rest after it.
"""

__all__ = [
    "claim_status_writer",
    "device_health",
    "events",
    "labelled_node",
    "news",
    "node_labels",
    "status_files",
]
