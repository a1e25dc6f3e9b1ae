"""Rank tables of HCCL from claims alone: which NPUs a job has, in which order, on which servers.

Only `job` and `members` know Kubernetes, and only `job` asks the API server; the rest is pure.
"""

__all__ = ["environment", "job", "members", "order", "rules", "tables"]
