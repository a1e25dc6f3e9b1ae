"""Reports on chips as Kubernetes Events, as labels of the Node, and as the kubelet's device health.

It changes no chip and no claim. Its face is a list of modules: the daemon needs `device_health` at
its start, and the rest once the first slice is there.
"""

__all__ = ["device_health", "events", "labelled_node", "news", "node_labels"]
