"""What signals mean to the daemon: TERM and INT stop it, USR1 shows what it is doing."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator

import trio

log = logging.getLogger(__name__)


async def receive_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set *stop* at SIGTERM or SIGINT, log the task tree at SIGUSR1, until cancelled."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1) as received:
        task_status.started()
        async for number in received:
            if number == signal.SIGUSR1:
                log.info("tasks\n%s", "\n".join(task_tree()))
            else:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                stop.set()


def task_tree() -> list[str]:
    """All trio tasks of this run, children indented below the task whose nursery holds them."""
    root = trio.lowlevel.current_root_task()
    return list(_lines(root, "")) if root else []


def _lines(task: trio.lowlevel.Task, indent: str) -> Iterator[str]:
    yield f"{indent}{task.name}"
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda child: child.name):
            yield from _lines(child, indent + "  ")
