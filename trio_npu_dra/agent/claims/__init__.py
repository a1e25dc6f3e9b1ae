"""Claims on this node: plan, hold, prepare, undo and repair.

It knows neither gRPC nor how chips are read: it implements `kubelet.driver` with a Board and a
ledger. Other packages import from the modules listed here.
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
