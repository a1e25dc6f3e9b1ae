"""The lock that lets one instance of the driver publish, while a rolling update has two on a node.

Two versions may describe the same devices differently. If both published, each would take the
other's slices for edited ones and repair them, again and again. So only the instance that holds a
lock in the driver's folder publishes. That is the older one until it ends, in whatever way; then
the younger one continues as after any restart. An update that never gets ready thus changes no
slice.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import trio

from trio_npu_dra.kit.base import file_lock
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool.publisher import PublisherStatus

log = logging.getLogger(__name__)

_PAUSE = 0.1  # seconds between two tries; pods of resources cannot start meanwhile


@asynccontextmanager
async def publisher_lock(
    state_folder: Path, status: Observable[PublisherStatus]
) -> AsyncIterator[None]:
    """Wait until no other instance publishes, and hold the lock while inside.

    A lock file that cannot be used is logged once and tried again until it can.

    Args:
        state_folder: The driver's folder on the node.
        status: Its `waiting` is true while this instance waits, its `has_lock` from then on.
    """
    since = trio.current_time()
    path = state_folder / "publisher.lock"
    waits = "publishing has to wait for its lock file"

    def wait() -> None:
        status.set(replace(status.value, waiting=True))

    async with file_lock.hold_patiently(path, pause_seconds=_PAUSE, waits=waits, on_wait=wait):
        status.set(replace(status.value, waiting=False, has_lock=True))
        waited = trio.current_time() - since
        if waited >= _PAUSE:
            log.info("publishing in place of an instance that ended", extra={"waited": waited})
        yield
