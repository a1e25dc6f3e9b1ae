"""Programs for people: `kubectl npu`, and commands of `npu-dra` such as doctor and ranktable.

No daemon imports this house. It may read what the agent keeps on the node, and changes none of it.
"""

__all__ = ["cli", "cluster", "doctor", "kubectl", "manifests", "names", "ranktable"]
