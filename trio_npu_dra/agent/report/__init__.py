"""Reports on chips as Kubernetes Events, as labels of the Node, and as the kubelet's device health.

It changes no chip and no claim. Its face is a list of modules: the daemon needs `device_health` at
its start, what labels the Node before the first slice, and the rest after it.
"""

__all__ = ["device_health", "events", "labelled_node", "news", "node_labels"]
