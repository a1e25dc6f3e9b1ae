"""Programs for people: `kubectl npu`, and commands of `npu-dra` such as doctor and ranktable.

No daemon imports this package. It may read what the agent keeps on the node, but never changes it.
"""

__all__ = ["cli", "cluster", "doctor", "kubectl", "manifests", "names", "ranktable"]
