"""The daemon: starts the tasks of all packages and passes the results of one to the next.

It decides nothing about a chip or a claim itself. `nursery`, `publishing` and `resources` start the
tasks.
"""

from trio_npu_dra.agent.daemon.nursery import run

__all__ = ["run"]
