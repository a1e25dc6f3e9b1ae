"""The publisher against the stand-in API server, mostly over a real socket."""

from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.pool.pools import generations
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
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Node, ObjectMeta, OwnerReference, ResourceSlice
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolAccepted, PoolContent, SliceWritten
from trio_npu_dra.lab.standins.api_state import ApiState


def owner(stored: ResourceSlice) -> str:
    """The uid of a slice's owner."""
    (reference,) = stored.metadata.owner_references
    return reference.uid


async def collect_garbage(state: ApiState) -> None:
    """Delete slices whose owner is gone, one at a time with pauses, as kube-controller-manager."""
    while True:
        nodes = {node.metadata.uid for node in state.all(Node)}
        orphans = [item for item in state.all(ResourceSlice) if owner(item) not in nodes]
        for item in orphans[:1]:
            state.remove(ResourceSlice, item.metadata.name)
        await trio.sleep(0.005)


async def test_the_pool_is_published_for_the_node(client: KubeClient, state: ApiState) -> None:
    """One slice, owned by the Node, named after node, driver and index."""
    async with publishing(client, state, devices(2)) as subject:
        status = await subject.until_settled()
    (stored,) = subject.slices
    node = state.all(Node)[0]
    assert status.node_uid == node.metadata.uid
    assert stored.metadata.name.startswith(f"node-1-{DRIVER}-00000-")
    assert stored.metadata.owner_references == (
        OwnerReference(
            api_version="v1",
            kind="Node",
            name="node-1",
            uid=node.metadata.uid or "",
            controller=True,
        ),
    )
    assert stored.spec.devices == devices(2)
    assert (stored.spec.pool.name, stored.spec.node_name) == ("node-1", "node-1")
    assert (status.published, status.devices) == (True, 2)
    assert subject.writes == 1


@pytest.mark.parametrize("count", [2, 70])
async def test_a_lost_create_is_not_repeated(
    count: int, client: KubeClient, state: ApiState
) -> None:
    """When the answer to a create is lost, the next look finds the slice: none is there twice."""
    slices = 1 + count // 64
    state.fail_next(slices, drop="after", verb="create")
    async with publishing(client, state, devices(count)) as subject:
        await subject.until_settled()
        assert subject.devices == devices(count)
        assert len({stored.spec.pool.generation for stored in subject.slices}) == 1
    assert len(subject.slices) == slices
    assert state.asked("create") == slices


async def test_an_outage_is_waited_out(client: KubeClient, state: ApiState) -> None:
    """While the API server refuses, the status says why; then the pool is there."""
    state.fail_next(2, status=503, verb="list")
    state.fail_next(2, status=403, verb="create")
    async with publishing(client, state, devices(2)) as subject:
        refused = await subject.until(lambda status: bool(status.problem))
        settled = await subject.until_settled()
    assert not refused.published
    assert "injected status" in refused.problem
    assert settled.problem == ""
    assert len(subject.slices) == 1


async def test_a_missing_node_is_waited_for(client: KubeClient, state: ApiState) -> None:
    """Before the node is registered nothing is published, and the status names it."""
    state.remove(Node, "node-1")
    async with publishing(client, state, devices(1)) as subject:
        status = await subject.until(lambda status: bool(status.problem))
        assert "node-1" in status.problem
        assert status.node_uid == ""
        assert subject.slices == ()
        state.add(Node(metadata=ObjectMeta(name="node-1")))
        await subject.until_settled()
    assert len(subject.slices) == 1


async def test_a_replaced_node_owns_the_slices(client: KubeClient, state: ApiState) -> None:
    """The garbage collector deletes slices of the Node that is gone, one after the other.

    The publisher gives the slices that are left to the new Node, and creates the missing ones.
    """
    async with publishing(client, state, devices(200)) as subject, trio.open_nursery() as nursery:
        await subject.until_settled()
        state.remove(Node, "node-1")
        node = state.add(Node(metadata=ObjectMeta(name="node-1")))
        nursery.start_soon(collect_garbage, state)
        await subject.until_stored(
            lambda slices: [owner(item) for item in slices] == [node.metadata.uid] * 4
        )
        assert (await subject.until_settled()).node_uid == node.metadata.uid
        assert subject.devices == devices(200)
        assert len({item.spec.pool.generation for item in subject.slices}) == 1
        nursery.cancel_scope.cancel()


def keep_node(state: ApiState) -> None:
    """The Node stays."""


def replace_node(state: ApiState) -> None:
    """The Node is removed and registers again."""
    state.remove(Node, "node-1")
    state.add(Node(metadata=ObjectMeta(name="node-1")))


@pytest.mark.parametrize("event", [keep_node, replace_node, ApiState.compact])
@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("is_away", [True, False])
@pytest.mark.parametrize(("count", "lost"), [(2, 1), (70, 2), (70, 1)])
async def test_slices_that_were_lost_come_back_with_a_higher_generation(
    count: int,
    lost: int,
    is_away: bool,
    restarts: bool,
    event: Callable[[ApiState], None],
    *,
    reach: Reach,
    autojump_clock: MockClock,
) -> None:
    """A watcher that did not see the deletion would take a lower generation for an old one.

    Whatever deletes the slices, whether the driver sees it or not, and without a memory of its own.
    """
    del autojump_clock

    async def lose(subject: Subject) -> None:
        if is_away:
            reach.leave()
            await trio.sleep(60)
        for item in subject.slices[-lost:]:
            reach.state.remove(ResourceSlice, item.metadata.name)
        event(reach.state)
        reach.come_back()

    async with settled(reach, devices(count)) as subject:
        for change in ("a", "b", None) * 3:  # each with a generation of its own, if there are two
            subject.publish(devices(count, taint=change)[::-1])
            await trio.sleep(10)
        before = max(item.spec.pool.generation for item in subject.slices)
        if not restarts:
            await lose(subject)
            await trio.sleep(60)
    if restarts:
        await lose(subject)
    async with settled(reach, devices(count)) as subject:
        assert subject.devices == devices(count)
        assert min(item.spec.pool.generation for item in subject.slices) > before


async def test_a_generation_that_others_made_is_not_forgotten(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """Another driver of our name may begin with a clock; the largest number has no next one."""
    del autojump_clock
    async with settled(reach, devices(2)) as subject:
        for generation, is_followed in ((10**12, True), (2**63 - 1, False)):
            (ours,) = subject.slices
            pool = ours.spec.pool.model_copy(update={"generation": generation})
            spec = ours.spec.model_copy(update={"pool": pool})
            reach.state.put(ours.model_copy(update={"spec": spec}))
            await trio.sleep(300)
            for item in subject.slices:
                reach.state.remove(ResourceSlice, item.metadata.name)
            await trio.sleep(300)
            (ours,) = subject.slices
            assert (ours.spec.pool.generation > generation) == is_followed
        assert 10**12 < ours.spec.pool.generation < 2 * 10**12


@pytest.mark.parametrize("count", [2, 70])
async def test_slices_that_come_back_as_they_were_get_a_higher_generation(
    count: int, reach: Reach, autojump_clock: MockClock
) -> None:
    """As from a backup of etcd, or of a person: who saw the later ones would take them for old."""
    del autojump_clock
    async with settled(reach, devices(count)) as subject:
        backup = subject.slices
        for item in backup:
            reach.state.remove(ResourceSlice, item.metadata.name)
        await trio.sleep(60)
        later = subject.slices
        for item in later:
            reach.state.remove(ResourceSlice, item.metadata.name)
        for item in backup:
            reach.state.add(item)
        await trio.sleep(60)
        assert subject.devices == devices(count)
        assert min(generations(subject.slices)) > max(generations(later))


async def test_slices_of_others_are_neither_touched_nor_followed(
    client: KubeClient, state: ApiState
) -> None:
    """They belong to another node, or to another driver on this one."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        (ours,) = subject.slices
        others = [
            state.add(
                ResourceSlice(
                    metadata=ObjectMeta(generate_name=f"{node}-{driver}-00000-"),
                    spec=ours.spec.model_copy(
                        update={
                            "driver": driver,
                            "node_name": node,
                            "pool": ours.spec.pool.model_copy(update={"name": node}),
                        }
                    ),
                )
            )
            for node, driver in (("node-2", DRIVER), ("node-1", "gpu.example.com"))
        ]
        subject.publish(devices(3))
        await subject.until(lambda status: status.devices == 3)
        await subject.until_settled()
    assert [item for item in subject.slices if item.spec.devices != devices(3)] == sorted(
        others, key=lambda item: item.metadata.name
    )
    watches = [request for request in state.requests if request.verb == "watch"]
    lists = [request for request in state.requests if request.verb == "list"]
    selector = f"spec.driver={DRIVER},spec.nodeName=node-1"
    assert {request.query["fieldSelector"] for request in (*watches, *lists)} == {selector}


async def test_a_slice_of_another_pool_says_nothing_of_ours(
    client: KubeClient, state: ApiState
) -> None:
    """It is deleted; the status has the generation of the slices that stay."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
    (ours,) = subject.slices
    strange = ours.spec.pool.model_copy(update={"name": "old", "generation": 999})
    spec = ours.spec.model_copy(update={"pool": strange})
    state.add(ResourceSlice(metadata=ObjectMeta(generate_name="old-"), spec=spec))
    async with publishing(client, state, devices(2)) as subject:
        status = await subject.until_settled()
    assert subject.slices == (ours,)
    assert status.generation == ours.spec.pool.generation


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
    """The uid counts too: after a restore of etcd a resourceVersion can come a second time."""
    del autojump_clock
    async with settled(reach, devices(70)) as subject:
        second = subject.slices[1].metadata
        subject.publish(devices(2))
        await subject.until_stored(lambda slices: len(slices) == 1)
    assert reach.deleted == [{"uid": second.uid, "resourceVersion": second.resource_version}]


async def test_each_write_and_each_accepted_pool_is_an_event(
    client: KubeClient, state: ApiState
) -> None:
    """In their order, refused writes with the reason: metrics count them."""
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


async def test_a_repair_that_fails_leaves_the_pool_no_longer_accepted(
    client: KubeClient, state: ApiState
) -> None:
    """The pool counts as accepted again once the repair is made."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        state.fail_next(status=503, verb="update")
        subject.edit()
        status = await subject.until(lambda status: bool(status.problem))
        assert not status.current
        await subject.until_settled()
        assert subject.devices == devices(2)


async def test_a_taint_that_the_server_drops_is_not_written_again(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """It comes with an update, which is the last write."""
    del autojump_clock
    reach.state.kubernetes = WITHOUT_FEATURES
    async with settled(reach, devices(2)) as subject:
        subject.publish(devices(2, taint="major"))
        await subject.until(lambda status: status.dropped == {"taints"})
        await trio.sleep(600)
    assert reach.asked["update"] == 1


class Silent:
    """An API server that takes requests, and a client that waits in vain."""

    async def create(self, *_: object, **__: object) -> None:
        """Never."""
        await trio.sleep_forever()

    get = list = create


async def test_requests_without_an_answer_are_named(
    state: ApiState, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A publisher, and a question for features, that wait for an answer; not a start that works."""
    del autojump_clock
    client = cast("KubeClient", Silent())
    subject = Subject(PoolContent(devices=devices(1)), state)
    features: Observable[ServerFeatures | None] = Observable(None)
    ask = partial(follow_features, client, features=features, status=subject.status)
    nursery.start_soon(partial(ask, node_name=NODE, driver_name=DRIVER))
    await nursery.start(subject.run, client)
    await trio.sleep(20)
    assert watchdog.overdue() == ()
    await trio.sleep(300)
    assert {line.split(" has taken")[0] for line in watchdog.overdue()} == {
        "asking what the API server keeps",
        "publishing ResourceSlices",
    }
