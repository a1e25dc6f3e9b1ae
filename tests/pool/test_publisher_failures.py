"""Lost answers, changes that are taken back, and the events of the publisher."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from tests.pool.publishing import WITHOUT_FEATURES, devices, publishing
from tests.pool.reach import Reach
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.pool import PoolAccepted, SliceWritten
from trio_npu_dra.lab.standins.api_state import ApiState


async def test_facts_that_are_taken_back_after_a_lost_answer_are_published(
    client: KubeClient, state: ApiState
) -> None:
    """A write that failed may have happened: until it is known, no older pool counts as stored.

    Nor does it while the watch is broken, which would show it.
    """
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        state.fail_next(1000, status=503, verb="watch")
        state.end_watches()
        await subject.until(lambda status: not status.watching)
        state.fail_next(drop="after", verb="update")
        subject.publish(devices(2, taint="major"))
        await subject.until(lambda status: bool(status.problem))
        assert subject.devices != devices(2)
        subject.publish(devices(2))
        await subject.until_stored(lambda slices: slices[0].spec.devices == devices(2))
        await subject.until(lambda status: status.current)


async def test_a_slice_is_deleted_only_as_the_one_that_was_read(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """By its uid too: after a restore of etcd a resourceVersion can come a second time."""
    del autojump_clock
    async with publishing(KubeClient(reach), reach.state, devices(70)) as subject:
        await subject.until_settled()
        second = subject.slices[1].metadata
        subject.publish(devices(2))
        await subject.until_stored(lambda slices: len(slices) == 1)
    assert reach.deleted == [{"uid": second.uid, "resourceVersion": second.resource_version}]


async def test_each_write_and_each_accepted_pool_is_told(
    client: KubeClient, state: ApiState
) -> None:
    """In their order, refused ones with the reason: metrics are made of it."""
    async with publishing(client, state, devices(70)) as subject:
        await subject.until_settled()
        state.fail_next(status=503, verb="update")
        subject.publish(devices(2))
        await subject.until(lambda status: status.current and status.devices == 2)
    written = [news for news in subject.events if isinstance(news, SliceWritten)]
    assert [(news.verb, news.error is None) for news in written] == [
        ("create", True),
        ("create", True),
        ("delete", True),
        ("update", False),
        ("update", True),
    ]
    assert subject.events[2] == subject.events[-1] == PoolAccepted()


async def test_facts_that_are_taken_back_at_once_leave_the_pool_accepted(
    client: KubeClient, state: ApiState
) -> None:
    """Whether they were written meanwhile or not."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        for _ in range(5):
            subject.publish(devices(3))
            await subject.until(lambda status: not status.current)
            subject.publish(devices(2))
            await subject.until_settled()
            assert subject.devices == devices(2)


async def test_a_watch_that_broke_is_opened_anew_and_counted(
    client: KubeClient, state: ApiState
) -> None:
    """Metrics tell by it that edits may be seen late."""
    async with publishing(client, state, devices(1)) as subject:
        settled = await subject.until_settled()
        state.fail_next(status=503, verb="watch")
        state.end_watches()
        await subject.until(lambda status: not status.watching)
        status = await subject.until_settled()
    assert (settled.watch_restarts, status.watch_restarts) == (0, 1)


async def test_a_repair_that_fails_leaves_the_pool_no_longer_accepted(
    client: KubeClient, state: ApiState
) -> None:
    """Until it is made."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        state.fail_next(status=503, verb="update")
        subject.edit()
        status = await subject.until(lambda status: bool(status.problem))
        assert not status.current
        await subject.until_settled()
        assert subject.devices == devices(2)


async def test_what_an_update_lost_is_not_written_again(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """A taint that comes later, on a server that has none: one write, and no repairs."""
    del autojump_clock
    reach.state.kubernetes = WITHOUT_FEATURES
    async with publishing(KubeClient(reach), reach.state, devices(2)) as subject:
        await subject.until_settled()
        subject.publish(devices(2, taint="major"))
        await subject.until(lambda status: status.dropped == {"taints"})
        await trio.sleep(600)
    assert reach.asked["update"] == 1
