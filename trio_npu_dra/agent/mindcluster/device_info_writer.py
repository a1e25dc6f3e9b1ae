"""Writes the ConfigMap of the node's devices: soon after a change, and before it is too old."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import trio

from trio_npu_dra.agent.mindcluster.device_info import config_map
from trio_npu_dra.agent.mindcluster.node_writer import MANAGER, RETRY_LIMIT
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import KubeError
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 1.0
"""Between two writes, at least."""

FRESH_SECONDS: Final = 290.0
"""Between two writes, at most: readers expect one every five minutes."""

_STUCK_SECONDS: Final = 60.0


async def keep_device_info(
    client: KubeClient,
    told: Observable[Mapping[str, Any] | None],
    *,
    node_name: str,
    clock: Callable[[], float] = time.time,
) -> NoReturn:
    """Keep the ConfigMap right and fresh, until cancelled.

    It needs `create` and `patch` on that ConfigMap. *told* is its `device_info.content`, None as
    long as there is none; *clock* tells seconds since 1970.
    """
    retry = Retry("telling the devices", log, limit=RETRY_LIMIT)
    updated_at = 0
    while True:
        written = await told.wait_until(lambda now: now is not None)
        assert written is not None
        # Of two writes in one second Volcano would not read the later one.
        updated_at = max(int(clock()), updated_at + 1)
        try:
            with watchdog.step("telling the devices", limit=_STUCK_SECONDS):
                whole = config_map(written, node_name=node_name, updated_at=updated_at)
                await client.apply(whole, manager=MANAGER)
        except KubeError as error:
            await trio.sleep(max(PAUSE_SECONDS, retry.failed(error)))
            continue
        retry.recovered()
        began = trio.current_time()
        with trio.move_on_at(began + FRESH_SECONDS):
            await told.wait_for_other(written)
        await trio.sleep_until(began + PAUSE_SECONDS)
