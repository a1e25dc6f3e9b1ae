"""Programs for people: `kubectl npu`, and `npu-dra` inspect, health, topology, validate and doctor.

No daemon imports this house. It may read what the agent keeps on the node, and changes none of it.
"""

__all__ = ["cli", "cluster", "doctor", "login", "manifests", "names"]
