"""The daemon: what rooms know of the node, and the nursery in which their tasks run.

`node` is what tasks share, `nursery` and `chips` start the tasks, and `later` those that neither
the kubelet's first call nor the first ResourceSlice needs, with the modules that only they import.
"""

from trio_npu_dra.agent.daemon.nursery import run

__all__ = ["run"]
