"""Publishing that waits for an answer that never comes is seen, publishing without work is not."""

from __future__ import annotations

from functools import partial
from typing import cast

import trio
from trio.testing import MockClock

from trio_npu_dra.agent.devices.features import ServerFeatures, follow_features
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolContent, PublisherStatus, publish


class Silent:
    """An API server that takes requests, and a client that waits for ever."""

    async def create(self, *_: object, **__: object) -> None:
        """Never."""
        await trio.sleep_forever()

    get = list = create


async def test_requests_without_end_are_named(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Both the question what the server keeps and the publisher."""
    del autojump_clock
    client = cast("KubeClient", Silent())
    features: Observable[ServerFeatures | None] = Observable(None)
    status = Observable(PublisherStatus())
    ask = partial(follow_features, client, features=features, status=status)
    nursery.start_soon(partial(ask, node_name="node-1", driver_name="npu.example.com"))
    await nursery.start(
        partial(
            publish,
            client,
            node_name="node-1",
            driver_name="npu.example.com",
            pool=Observable(PoolContent(devices=(Device(name="npu-0"),))),
            status=status,
            node_uid=Observable(""),
        )
    )
    await trio.sleep(20)
    assert watchdog.overdue() == ()
    await trio.sleep(300)
    assert {line.split(" has taken")[0] for line in watchdog.overdue()} == {
        "asking what the API server keeps",
        "publishing ResourceSlices",
    }
