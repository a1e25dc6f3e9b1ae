"""Claims on this node: plan, hold, prepare, undo and repair.

The room knows neither gRPC nor how chips are read: it fulfils `kubelet.driver` with a Board and a
ledger. Other rooms import from the modules listed here.
"""

from __future__ import annotations

__all__ = [
    "contention",
    "metadata",
    "orphans",
    "planner",
    "repair",
    "service",
    "steps",
    "vnpu_step",
]
