"""Signals to the daemon: TERM and INT stop it, USR1 logs its tasks."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

import trio

from trio_npu_dra.kit.base.log_thread import ThreadedStream

log = logging.getLogger(__name__)


async def receive_signals(
    stop: trio.Event, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Set *stop* at SIGTERM or SIGINT, log the task tree at SIGUSR1, until cancelled."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGUSR1) as received:
        task_status.started()
        async for number in received:
            if number == signal.SIGUSR1:
                root = trio.lowlevel.current_root_task()
                assert root is not None
                log.info("tasks\n%s", "\n".join(_lines(root, "")))
            else:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                stop.set()


async def end_at_last(stop: trio.Event, seconds: float) -> None:
    """End the process *seconds* after *stop*, until cancelled: a thread does it, come what may."""
    await stop.wait()
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()
    try:
        await trio.sleep_forever()
    finally:
        timer.cancel()


def _end() -> None:
    log.error("the stop is cut off: a call to a disk or a library does not return")
    if isinstance(sys.stderr, ThreadedStream):
        sys.stderr.drain()
    os._exit(1)


def _lines(task: trio.lowlevel.Task, indent: str) -> Iterator[str]:
    """A task and those below it, indented below the task whose nursery holds them."""
    yield f"{indent}{task.name}"
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda child: child.name):
            yield from _lines(child, indent + "  ")
