"""The daemon: starts the tasks of all rooms and passes one room's findings to the next.

It decides nothing about a chip or a claim itself. `nursery` and `publishing` start the tasks,
`deferred` those that a start does not need, with their modules.
"""

from trio_npu_dra.agent.daemon.nursery import run

__all__ = ["run"]
