"""How much the publisher asks the API server, on a virtual clock: 5,000 nodes ask the same one."""
# ruff: noqa: ARG001 - the fixture autojump_clock is asked for, not used

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.pool.publishing import (
    DRIVER,
    NODE,
    WITHOUT_FEATURES,
    Subject,
    devices,
    publishing,
    settled,
)
from tests.pool.reach import Reach
from trio_npu_dra.agent.devices.features import ServerFeatures, follow_features
from trio_npu_dra.kit.api.bodies import OBJECT_LIMIT
from trio_npu_dra.kit.api.client import WATCH_SECONDS, KubeClient
from trio_npu_dra.kit.api.objects import Node, ObjectMeta, ResourceSlice
from trio_npu_dra.kit.api.transport import JSON
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import SliceWritten
from trio_npu_dra.lab.standins.api_state import ApiState

LAGS = (0.0, 0.5)
"""Seconds; the watch can show a write before its answer comes, or long after it."""


async def asked(reach: Reach, *, seconds: float = 60) -> dict[str, int]:
    """How many requests come within a time, by verb."""
    await trio.sleep(seconds)
    counted, reach.asked = dict(reach.asked), Counter()
    return counted


@pytest.mark.parametrize("lag", LAGS)
async def test_a_start_lists_the_slices_once(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """The watch begins with the list on which writes are planned; a restart writes nothing."""
    reach.lag = lag
    pool = devices(70, taint="minor")
    async with publishing(KubeClient(reach), reach.state, pool):
        assert await asked(reach) == {"get": 1, "list": 1, "watch": 1, "create": 2}
    async with publishing(KubeClient(reach), reach.state, pool):
        assert await asked(reach) == {"get": 1, "list": 1, "watch": 1}


@pytest.mark.parametrize("lag", LAGS)
async def test_a_change_costs_its_writes_and_a_list_before_a_create(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """The moment at which the watch shows them costs nothing."""
    reach.lag = lag
    async with publishing(KubeClient(reach), reach.state, devices(70)) as subject:
        await asked(reach)
        subject.publish(devices(70, taint="major"))
        assert await asked(reach) == {"update": 1}
        subject.publish(devices(2))
        assert await asked(reach) == {"delete": 1, "update": 1}
        subject.publish(devices(70))
        assert await asked(reach) == {"get": 1, "list": 1, "create": 1, "update": 1}


@pytest.mark.parametrize("lag", LAGS)
async def test_a_change_while_the_watch_is_broken_costs_a_list_and_its_write(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """The next watch goes on from before the write, and first shows what that has replaced."""
    reach.lag = lag
    async with publishing(KubeClient(reach), reach.state, devices(2)) as subject:
        await asked(reach)
        reach.leave()
        await subject.until(lambda status: not status.watching)
        reach.come_back()
        subject.publish(devices(2, taint="major"))
        assert await asked(reach) == {"watch": 1, "list": 1, "update": 1}
        assert [one.error for one in subject.events if isinstance(one, SliceWritten)] == [None] * 2


async def test_a_change_of_what_another_has_just_edited_is_planned_anew(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The watch has not shown the edit yet; the API server refuses an update of the old version."""
    async with publishing(KubeClient(reach), reach.state, devices(2)) as subject:
        await asked(reach)
        reach.lag = 0.5
        subject.edit()
        subject.publish(devices(2, taint="major"))
        assert await asked(reach) == {"list": 1, "update": 2}
        assert subject.devices[1:] == devices(2)[1:]
        assert [len(device.taints) for device in subject.devices] == [1, 0]


class Editor(Reach):
    """An editor changes the first slice before the driver has the answer that it was made."""

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
        accept: bytes = JSON,
    ) -> bytes:
        """One request."""
        answer = await super().ask(asked, method, path, body, limit=limit, accept=accept)
        if method == "POST" and self.asked["create"] == 1:
            (stored,) = self.state.all(ResourceSlice)
            spec = stored.spec.model_copy(update={"devices": stored.spec.devices[1:]})
            self.state.put(stored.model_copy(update={"spec": spec}))
            await trio.sleep(1)  # meanwhile the watch shows both
        return answer


async def test_an_edit_that_hides_our_own_write_is_repaired(
    state: ApiState, autojump_clock: MockClock
) -> None:
    """The watch may never show our version: the publisher stops waiting for it."""
    reach = Editor(state)
    async with publishing(KubeClient(reach), state, devices(2)) as subject:
        await asked(reach, seconds=4)
        assert subject.devices == devices(2)


async def test_a_change_does_not_wait_for_what_the_watch_shows(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """A watch that shows nothing delays no fact."""
    async with settled(reach, devices(1)) as subject:
        reach.lag = 1000.0
        for count in range(2, 8):
            subject.publish(devices(count))
            await trio.sleep(0.3)
            assert subject.devices == devices(count)


class AskingNode:
    """A publisher that is at rest, and a task that follows what its API server keeps."""

    def __init__(self, reach: Reach, subject: Subject) -> None:
        self.features: Observable[ServerFeatures | None] = Observable(None)
        self.reach = reach
        self.subject = subject

    async def replace_server(self) -> None:
        """With one that has fewer features and knows no version from before."""
        self.reach.state.kubernetes = WITHOUT_FEATURES
        self.reach.state.add(Node(metadata=ObjectMeta(name="other")))
        await trio.sleep(1)  # then no open watch has anything left to show
        self.reach.state.compact()
        self.reach.asked.clear()


@asynccontextmanager
async def asking(reach: Reach) -> AsyncIterator[AskingNode]:
    """The node for the time of the block."""
    client = KubeClient(reach)
    async with publishing(client, reach.state, devices(2)) as subject, trio.open_nursery() as tasks:
        await subject.until_settled()
        await trio.sleep(1)
        node = AskingNode(reach, subject)
        ask = partial(follow_features, node_name=NODE, driver_name=DRIVER, status=subject.status)
        tasks.start_soon(partial(ask, client, features=node.features))
        assert await node.features.wait_until(lambda found: found is not None) == ServerFeatures()
        yield node
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("lag", LAGS)
async def test_a_server_that_restarts_costs_one_question(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """The watch first says that its resourceVersion is too old, which is no loss of contact."""
    reach.lag = lag
    async with asking(reach) as node:
        reach.leave()
        await trio.sleep(20)
        await node.replace_server()
        reach.come_back()
        assert await asked(reach, seconds=70) == {"watch": 2, "list": 1, "dry-run": 1}
        assert node.features.value != ServerFeatures()
        assert node.subject.status.value.watch_restarts == 1


@pytest.mark.parametrize("lag", LAGS)
async def test_a_server_that_was_replaced_unnoticed_costs_one_question(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """Between two watches, as behind a load balancer, only that answer gives it away."""
    reach.lag = lag
    async with asking(reach) as node:
        await node.replace_server()
        found = await asked(reach, seconds=WATCH_SECONDS + 60)
        assert found == {"watch": 2, "list": 1, "dry-run": 1}
        assert node.features.value != ServerFeatures()
