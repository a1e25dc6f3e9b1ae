"""The publisher over hours on a virtual clock: nothing here waits in real time."""
# ruff: noqa: ARG001 - the fixture autojump_clock is asked for, not used

import gc
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
import trio
from trio.testing import MockClock

from tests.pool.publishing import WITHOUT_FEATURES, Devices, Subject, devices, publishing, settled
from tests.pool.reach import Reach
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import ObjectMeta, ResourceSlice
from trio_npu_dra.kit.base.pace import AT_ONCE
from trio_npu_dra.kit.pool import PoolAccepted
from trio_npu_dra.kit.pool.taint_times import untimed
from trio_npu_dra.lab.standins.api_rules import Kubernetes

HOUR = 3600.0
LOG_LINES = 25
"""For an hour away: 11 of the watch and 11 of the publisher, a recovery each, one repair."""
GROWTH_BLOCKS, GROWTH_BYTES = 800, 32_000
"""Memory that an hour away may keep: the log lines take up to 11,000 bytes of it, and one object
kept of each of the 1,000 to 2,000 failed requests would be more."""


def published(subject: Subject) -> Devices:
    """The devices that the API server has, without the times that it added."""
    return tuple(untimed(device) for device in subject.devices)


@pytest.fixture
def held() -> Iterator[Callable[[], tuple[int, int]]]:
    """Tells how much memory Python holds.

    In blocks of at most 512 bytes, for all code; and in bytes, for objects that were made since the
    test began and can be part of a cycle, and for those that they refer to.
    """

    def tell() -> tuple[int, int]:
        gc.collect()
        blocks, known = sys.getallocatedblocks(), gc.get_objects()
        sizes = {id(item): sys.getsizeof(item) for item in (*known, *gc.get_referents(*known))}
        return blocks, sum(sizes.values())

    gc.collect()
    gc.freeze()
    yield tell
    gc.unfreeze()


@pytest.mark.parametrize("facts_change", [False, True])
async def test_an_hour_without_the_api_server(
    facts_change: bool,
    reach: Reach,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    held: Callable[[], tuple[int, int]],
) -> None:
    """Memory stays flat and the log short; 5 s after its return everything is right again.

    Meanwhile one slice was deleted, the other edited, history forgotten and maybe the pool changed.
    """
    caplog.set_level(logging.INFO)
    wanted = devices(70, taint="major" if facts_change else None)
    async with settled(reach, devices(70)) as subject:
        await trio.sleep(HOUR)
        caplog.clear()
        reach.leave()
        await trio.sleep(60)
        subject.publish(wanted)
        await trio.sleep(540)
        (blocks, size), asked = held(), reach.asked.total()
        await trio.sleep(HOUR - 600)
        (more_blocks, more), asked = held(), reach.asked.total() - asked
        reach.state.remove(ResourceSlice, subject.slices[0].metadata.name)
        subject.edit()
        reach.state.compact()
        reach.come_back()
        await trio.sleep(5)
        assert subject.status.value.current
        assert subject.status.value.watching
        assert published(subject) == wanted
    assert more_blocks - blocks < GROWTH_BLOCKS
    assert more - size < GROWTH_BYTES
    assert len(caplog.records) <= LOG_LINES
    assert 700 * (1 + facts_change) <= asked <= 1600 * (1 + facts_change)


async def test_every_outage_ends_within_five_seconds(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """Its length, and the moment of its end between two retries, do not matter."""
    async with settled(reach, devices(2)) as subject:
        for number in range(40):
            reach.leave()
            await trio.sleep(0.3 + 7.7 * number)
            subject.publish(devices(3 + number))
            await trio.sleep(0.3 * number)
            reach.come_back()
            await trio.sleep(5)
            assert published(subject) == devices(3 + number)
            assert subject.status.value.watching


async def test_a_quiet_hour_costs_nothing_but_watches(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """One watch of 290 s after the other, continued from bookmarks: no list, no write."""
    async with settled(reach, devices(70, taint="minor")):
        await trio.sleep(1)
        reach.asked.clear()
        for _ in range(60):
            await trio.sleep(60)
            reach.state.bookmark()
            await trio.sleep(1)
            reach.state.compact()
    assert reach.asked == {"watch": 12}


async def test_a_storm_of_changes_is_a_few_writes(reach: Reach, autojump_clock: MockClock) -> None:
    """The first change is written without delay, the last one soon, and some in between never."""
    async with settled(reach, devices(2)) as subject:
        reach.asked.clear()
        for number in range(1000):
            subject.publish(devices(2, taint=f"fault-{number}"))
            await trio.sleep(0.01)
            if number == 0:
                assert published(subject) == devices(2, taint="fault-0")
        await trio.sleep(1)
        assert published(subject) == devices(2, taint="fault-999")
    assert 30 <= reach.asked["update"] <= 70


@pytest.mark.parametrize("pause", [0.0, 0.001])
async def test_a_change_that_is_taken_back_before_its_turn_is_not_written(
    pause: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """Nothing is written, and the pool is reported as accepted, which ends its latency."""
    async with settled(reach, devices(2)) as subject:
        for count in range(3, 4 + AT_ONCE):
            subject.publish(devices(count))
            await subject.until_stored(lambda _: subject.devices == subject.pool.value.devices)
        await trio.sleep(0.001)
        written, last = reach.asked["update"], subject.pool.value.devices
        subject.events.clear()
        subject.publish(devices(2))
        if pause:
            await trio.sleep(pause)
        subject.publish(last)
        await trio.sleep(1)
        assert subject.status.value.current
    assert reach.asked["update"] == written
    assert set(subject.events) == {PoolAccepted()}


@pytest.mark.parametrize("edits", ["edited", "deleted", "all deleted", "twin", "foreign"])
async def test_edits_are_undone_within_two_seconds(
    edits: str, reach: Reach, autojump_clock: MockClock
) -> None:
    """Three times in a row; a fourth time begins a fight. Other people's labels stay.

    The kubelet deletes all slices of its node when it starts.
    """
    pool = devices(70)
    async with settled(reach, pool) as subject:
        for _ in range(3):
            first = subject.slices[0]
            if edits == "edited":
                subject.edit()
            elif "deleted" in edits:
                for item in subject.slices if edits == "all deleted" else (first,):
                    reach.state.remove(ResourceSlice, item.metadata.name)
            elif edits == "twin":
                name = f"{first.metadata.name[:-5]}zzzzz"
                reach.state.add(first.with_metadata(ObjectMeta(name=name)))
            else:
                reach.state.add(first.with_metadata(ObjectMeta(name="a-copy")))
            await trio.sleep(2)
            assert len(subject.slices) == 2
            assert published(subject) == pool
            assert len({item.spec.pool.generation for item in subject.slices}) == 1
            assert edits != "edited" or subject.slices[0].metadata.labels == {"a": "b"}


async def test_a_fight_with_an_editor_slows_down(reach: Reach, autojump_clock: MockClock) -> None:
    """Against an editor that undoes each repair immediately: one or two writes a minute."""
    async with settled(reach, devices(2)) as subject:
        reach.asked.clear()
        with trio.move_on_after(HOUR):
            while True:
                subject.edit()
                await subject.until_stored(lambda _: published(subject) == devices(2), within=61)
    assert 60 <= reach.asked["update"] <= 110
    assert reach.asked["list"] <= 220


async def test_dropped_fields_are_tried_again_after_an_outage(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The API server may have been replaced by one that keeps them; no other field is touched."""
    reach.state.kubernetes = WITHOUT_FEATURES
    pool = devices(2, taint="major")
    async with settled(reach, pool) as subject:
        assert subject.status.value.dropped == {"taints"}
        assert published(subject) == devices(2)
        await trio.sleep(HOUR)
        assert reach.asked["update"] == 0
        reach.leave()
        await trio.sleep(1)
        reach.state.kubernetes = Kubernetes()
        reach.come_back()
        await trio.sleep(5)
        assert subject.status.value.dropped == frozenset()
        assert published(subject) == pool
        assert reach.asked["update"] == 1


async def test_a_refused_pool_costs_no_request(reach: Reach, autojump_clock: MockClock) -> None:
    """The published pool stays, the status says why, and the next pool needs no wait."""
    async with publishing(KubeClient(reach), reach.state, devices(1)) as subject:
        await trio.sleep(1)
        reach.asked.clear()
        subject.publish((*devices(1), *devices(1)))
        await trio.sleep(100)
        assert "npu-0 is in it twice" in subject.status.value.problem
        assert not subject.status.value.current
        assert reach.asked == {}
        subject.publish(devices(2))
        await trio.sleep(0.1)
        assert published(subject) == devices(2)


async def test_a_pool_that_the_api_server_refuses_gives_way_to_the_next(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """The next pool does not wait for the retry."""
    async with settled(reach, devices(1)) as subject:
        reach.state.fail_next(status=422, verb="update")
        subject.publish(devices(2))
        await subject.until(lambda status: bool(status.problem))
        subject.publish(devices(3))
        await trio.sleep(0.05)
        assert published(subject) == devices(3)


async def test_a_slice_that_is_not_understood_is_replaced(
    reach: Reach, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The pool is right again, and one log line names the field."""
    pool = devices(70)
    async with settled(reach, pool) as subject:
        wire = subject.slices[0].to_wire()
        wire["spec"]["devices"][0]["attributes"] = {"x": {"int": "many"}}
        reach.state.update(ResourceSlice.plural, wire)
        reach.asked.clear()
        await trio.sleep(2)
        assert published(subject) == pool
        assert subject.status.value.current
        await trio.sleep(HOUR)
    assert reach.asked.total() - reach.asked["watch"] <= 10
    (line,) = caplog.records
    assert "devices.0.attributes.x.int: Input should be a valid integer" in vars(line)["first"]
