"""The question which features the API server has, and when the driver asks it again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS
from tests.pool.publishing import DRIVER, NODE, WITHOUT_FEATURES, publishing
from tests.pool.reach import Reach
from trio_npu_dra.agent.devices.features import ServerFeatures, follow_features
from trio_npu_dra.agent.devices.taints import TaintEffect
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Device, DeviceTaint, ResourceSlice
from trio_npu_dra.kit.base.observable import Observable, derive
from trio_npu_dra.kit.pool import PoolContent, PublisherStatus
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.api_state import ApiState

NONE_KEPT = ServerFeatures(taint_effects=frozenset(), counters=False, shares=False)
OF_34 = frozenset({TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE})
HOUR = 3600.0


class Subject:
    """A task that follows the features, and the publisher's status that it reads."""

    def __init__(self, reach: Reach) -> None:
        self.features: Observable[ServerFeatures | None] = Observable(None)
        self.status = Observable(PublisherStatus())
        self.reach = reach

    @property
    def asked(self) -> int:
        """How many dry runs there were."""
        return self.reach.asked["dry-run"]

    async def until(self, wanted: ServerFeatures) -> None:
        """Wait until these are the features."""
        with trio.fail_after(HANG_SECONDS):
            await self.features.wait_until(lambda found: found == wanted)

    async def note(self, **changes: bool | str | int | frozenset[str]) -> None:
        """The publisher says something, and is heard."""
        self.status.set(replace(self.status.value, **changes))  # type: ignore[arg-type]
        await wait_all_tasks_blocked()


@asynccontextmanager
async def following(reach: Reach) -> AsyncIterator[Subject]:
    """The task for the time of the block."""
    subject = Subject(reach)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                follow_features,
                KubeClient(reach),
                node_name=NODE,
                driver_name=DRIVER,
                features=subject.features,
                status=subject.status,
            )
        )
        yield subject
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("kubernetes", "found", "asked"),
    [
        (Kubernetes(), ServerFeatures(), 1),
        (WITHOUT_FEATURES, NONE_KEPT, 1),
        (Kubernetes(taints=False), replace(NONE_KEPT, counters=True, shares=True), 1),
        (Kubernetes(minor=35, counters=False), ServerFeatures(counters=False), 1),
        (Kubernetes(minor=35, shares=False), ServerFeatures(shares=False), 1),
        (
            Kubernetes(minor=34, counters=False),
            ServerFeatures(taint_effects=OF_34, counters=False),
            7,
        ),
        (Kubernetes(minor=34, taints=False, shares=False), NONE_KEPT, 7),
        (Kubernetes(minor=34), ServerFeatures(taint_effects=OF_34, counters=False), 7),
    ],
)
async def test_each_feature_is_known_by_itself(
    kubernetes: Kubernetes, found: ServerFeatures, asked: int, reach: Reach
) -> None:
    """One that is refused costs no other feature; without a refusal one dry run is enough."""
    reach.state.kubernetes = kubernetes
    async with following(reach) as subject:
        await subject.until(found)
        await wait_all_tasks_blocked()
        assert subject.asked == asked


async def test_the_question_stores_nothing(
    client: KubeClient, state: ApiState, nursery: trio.Nursery
) -> None:
    """It is a dry run of a create, as the rights of the driver and its policy admit it."""
    features: Observable[ServerFeatures | None] = Observable(None)
    ask = partial(follow_features, client, features=features, status=Observable(PublisherStatus()))
    nursery.start_soon(partial(ask, node_name=NODE, driver_name=DRIVER))
    with trio.fail_after(HANG_SECONDS):
        await features.wait_until(lambda found: found == ServerFeatures())
    assert state.all(ResourceSlice) == ()
    (request,) = state.requests
    assert (request.verb, request.query) == ("create", {"dryRun": "All"})


@pytest.mark.parametrize("kubernetes", [Kubernetes(), Kubernetes(minor=34), WITHOUT_FEATURES])
async def test_one_log_line_says_what_becomes_of_unhealthy_npus(
    kubernetes: Kubernetes,
    reach: Reach,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It comes once, however often the driver asks."""
    del autojump_clock
    caplog.set_level(logging.INFO)
    reach.state.kubernetes = kubernetes
    async with following(reach) as subject:
        await trio.sleep(10 * HOUR)
        assert subject.asked > 1
    assert len(caplog.messages) == 1


async def test_a_server_that_refuses_every_slice_is_asked_until_it_does_not(reach: Reach) -> None:
    """An admission policy may do so: the refusal says nothing about features."""
    reach.state.fail_next(2, status=422)
    async with following(reach) as subject:
        await subject.until(ServerFeatures())
        assert subject.asked == 3


@pytest.mark.parametrize("watching_at_start", [True, False])
@pytest.mark.parametrize("seen", [True, False])
async def test_a_server_that_was_away_is_asked_again(
    reach: Reach, autojump_clock: MockClock, *, watching_at_start: bool, seen: bool
) -> None:
    """It may have another version, even if it was back before the publisher noticed the loss.

    All nodes have lost it, and do not come together.
    """
    del autojump_clock
    async with following(reach) as subject:
        if watching_at_start:
            await subject.note(watching=True)
        await subject.until(ServerFeatures())
        await subject.note(watching=True)
        reach.state.kubernetes = WITHOUT_FEATURES
        if seen:
            await subject.note(watching=False)
        assert subject.asked == 1
        await subject.note(watching=True, watch_restarts=1)
        assert subject.asked == 1
        await trio.sleep(60)
        assert subject.features.value == NONE_KEPT
        assert subject.asked == 2


async def test_fields_that_a_new_server_drops_are_asked_about_at_once(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """An NPU that should have a taint has none: that does not wait for the turn of the node."""
    del autojump_clock
    async with following(reach) as subject:
        await subject.until(ServerFeatures())
        reach.state.kubernetes = WITHOUT_FEATURES
        await subject.note(watching=True, watch_restarts=1)
        await subject.note(dropped=frozenset({"taints"}))
        assert subject.features.value == NONE_KEPT


@pytest.mark.parametrize("moment", ["while it is away", "soon", "unnoticed"])
async def test_taints_that_a_new_server_refuses_are_asked_about_at_once(
    reach: Reach, nursery: trio.Nursery, autojump_clock: MockClock, moment: str
) -> None:
    """With them it refuses all others of the slice."""
    del autojump_clock
    client, features = KubeClient(reach), Observable[ServerFeatures | None](None)
    is_faulty = Observable(False)

    def pool() -> PoolContent:
        assert features.value is not None
        taints = tuple(
            DeviceTaint(key=DRIVER, effect=effect)
            for effect in sorted(features.value.taint_effects)
            if is_faulty.value
        )
        return PoolContent(devices=(Device(name="npu-0", taints=taints),))

    async with publishing(client, reach.state, ()) as subject:
        follow = partial(follow_features, client, features=features, status=subject.status)
        nursery.start_soon(partial(follow, node_name=NODE, driver_name=DRIVER))
        await features.wait_until(lambda found: found is not None)
        await nursery.start(derive, subject.pool, pool, features, is_faulty)
        await trio.sleep(20)
        if moment != "unnoticed":
            reach.leave()
            await trio.sleep(20)
        is_faulty.set(moment == "while it is away")
        await trio.sleep(20)
        reach.state.kubernetes = Kubernetes(minor=34)
        reach.come_back()
        await trio.sleep(5 if moment == "soon" else 0)
        is_faulty.set(True)
        await trio.sleep(7)
        (npu,) = subject.devices
        assert {taint.effect for taint in npu.taints} == OF_34


async def test_a_first_contact_that_came_late_is_asked_again(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The API server was asked, then away before the publisher watched it."""
    del autojump_clock
    async with following(reach) as subject:
        await subject.until(ServerFeatures())
        reach.state.kubernetes = WITHOUT_FEATURES
        await subject.note(problem="list resourceslices: connection refused")
        await subject.note(problem="", published=True)
        await subject.note(watching=True)
        await trio.sleep(60)
        assert subject.features.value == NONE_KEPT


async def test_a_start_without_trouble_is_one_question(reach: Reach) -> None:
    """A publisher that then watches and publishes is no reason for another."""
    async with following(reach) as subject:
        await subject.until(ServerFeatures())
        await subject.note(watching=True)
        await subject.note(published=True, current=True)
        assert subject.asked == 1


async def test_an_unnoticed_update_is_known_within_an_hour_and_a_half(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The server may be one of several behind one address.

    A day costs a question an hour or so, at no fixed time.
    """
    del autojump_clock
    async with following(reach) as subject:
        await subject.note(watching=True)
        await subject.until(ServerFeatures())
        reach.state.kubernetes = WITHOUT_FEATURES
        await trio.sleep(1.5 * HOUR)
        assert subject.features.value == NONE_KEPT
        before = subject.asked
        await trio.sleep(24 * HOUR)
        assert 15 <= subject.asked - before <= 49


async def test_fields_that_were_dropped_after_all_are_a_reason_to_ask(reach: Reach) -> None:
    """Once: another server than the one that dropped them may answer."""
    async with following(reach) as subject:
        await subject.note(watching=True)
        await subject.until(ServerFeatures())
        await subject.note(dropped=frozenset({"consumesCounters"}))
        await subject.note(devices=3)
        assert subject.asked == 2


async def test_a_server_that_does_not_answer_is_asked_until_it_does(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The features are unknown meanwhile."""
    del autojump_clock
    reach.leave()
    async with following(reach) as subject:
        await trio.sleep(60)
        assert subject.features.value is None
        reach.come_back()
        await trio.sleep(5)
        assert subject.features.value == ServerFeatures()
