"""The lists that a kubelet gets when it watches device health, and when it gets them."""

from __future__ import annotations

import time

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.grpc.serving import run
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc._generated import v1
from trio_npu_dra.kit.kubelet.device_health import (
    MESSAGE_LIMIT,
    RESEND_SECONDS,
    TIMEOUT_SECONDS,
    DeviceHealth,
    DeviceHealths,
    routes,
)

GOOD = DeviceHealth(pool="node-a", device="npu-0", state=HealthState.HEALTHY)
BAD = DeviceHealth(
    pool="node-a",
    device="npu-1",
    state=HealthState.UNHEALTHY,
    message="HBM multi bit ECC error",
)


class Watcher:
    """A stream of the v1 service and its messages."""

    def __init__(self, health: Observable[DeviceHealths]) -> None:
        self.received: list[v1.NodeWatchResourcesResponse] = []
        self._health = health

    async def run(self) -> None:
        """Watch until cancelled."""
        await run(routes(self._health)[0], v1.NodeWatchResourcesRequest(), self._take)

    async def _take(self, reply: v1.NodeWatchResourcesResponse) -> None:
        await trio.lowlevel.checkpoint()
        self.received.append(reply)

    @property
    def states(self) -> list[list[tuple[str, int]]]:
        """Each list received, as device and state."""
        return [
            [(entry.device.device_name, entry.health) for entry in reply.devices if entry.device]
            for reply in self.received
        ]


async def test_every_stream_gets_the_whole_list_now_and_on_each_change(
    nursery: trio.Nursery,
) -> None:
    """Two kubelets, one list: both see it now and after each change, complete or empty."""
    health: Observable[DeviceHealths] = Observable(())
    watchers = [Watcher(health), Watcher(health)]
    for watcher in watchers:
        nursery.start_soon(watcher.run)
    for devices in ((GOOD,), (GOOD, BAD)):
        await wait_all_tasks_blocked()
        health.set(devices)
    await wait_all_tasks_blocked()
    for watcher in watchers:
        assert watcher.states == [[], [("npu-0", 1)], [("npu-0", 1), ("npu-1", 2)]]
    nursery.cancel_scope.cancel()


async def test_an_unchanged_list_is_repeated_before_the_kubelet_forgets_it(
    mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The list comes again after ten seconds, well within the kubelet's thirty."""
    watcher = Watcher(Observable((GOOD,)))
    nursery.start_soon(watcher.run)
    for count in range(1, 4):
        await wait_all_tasks_blocked()
        assert watcher.states == [[("npu-0", 1)]] * count
        mock_clock.jump(RESEND_SECONDS)
    nursery.cancel_scope.cancel()


async def test_a_list_is_sent_whole_before_the_next_one_begins(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """A slow kubelet never gets two lists mixed up."""
    del autojump_clock
    health: Observable[DeviceHealths] = Observable((GOOD,))
    sending = 0
    sent: list[int] = []

    async def send(reply: v1.NodeWatchResourcesResponse) -> None:
        nonlocal sending
        sending += 1
        assert sending == 1
        await trio.sleep(RESEND_SECONDS - 1)
        sent.append(len(reply.devices))
        sending -= 1

    nursery.start_soon(run, routes(health)[0], v1.NodeWatchResourcesRequest(), send)
    await trio.sleep(2 * RESEND_SECONDS)  # during the first repetition
    health.set((GOOD, BAD))
    await trio.sleep(3 * RESEND_SECONDS)
    nursery.cancel_scope.cancel()
    assert sent[:3] == [1, 1, 2]


async def test_both_versions_say_the_same(nursery: trio.Nursery) -> None:
    """Times are current, messages have maximum length."""
    long = DeviceHealth(pool="p", device="d", state=HealthState.UNKNOWN, message="x" * 9999)
    received: list[v1.NodeWatchResourcesResponse] = []

    async def take(
        reply: v1.NodeWatchResourcesResponse,
    ) -> None:
        await trio.lowlevel.checkpoint()
        received.append(reply)

    before = int(time.time())
    for route in routes(Observable((BAD, long))):
        nursery.start_soon(run, route, route.handler.request_type(), take)
    await wait_all_tasks_blocked()
    nursery.cancel_scope.cancel()
    for reply in received:
        assert before <= reply.devices[0].last_updated_time <= time.time()
        for entry in reply.devices:
            entry.last_updated_time = 0
    assert bytes(received[0]) == bytes(received[1])
    assert received[0].devices[0].message == "HBM multi bit ECC error"
    assert received[0].devices[0].health_check_timeout_seconds == TIMEOUT_SECONDS
    assert len(received[0].devices[1].message) == MESSAGE_LIMIT
