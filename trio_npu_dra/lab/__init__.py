"""A node without hardware, and a cluster without Kubernetes: for workstations, demos and tests.

Only `cli` knows the agent. The driver imports nothing from this package.
"""

__all__ = ["cli", "example", "simulator", "standins"]
