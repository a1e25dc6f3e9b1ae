"""Promises of the publisher, against the stand-in API server over a real socket."""

import logging

import pytest
import trio

from tests.pool.publishing import DRIVER, WITHOUT_FEATURES, devices, publishing
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    Device,
    DeviceCapacity,
    Node,
    ObjectMeta,
    OwnerReference,
    ResourceSlice,
)
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.api_state import ApiState


def owner(stored: ResourceSlice) -> str:
    """The uid of a slice's owner."""
    (reference,) = stored.metadata.owner_references or ()
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
    assert (status.published, status.devices, status.generation) == (True, 2, 1)
    assert subject.writes == 1


async def test_an_empty_pool_is_published_too(client: KubeClient, state: ApiState) -> None:
    """No devices are one slice without devices."""
    async with publishing(client, state, ()) as subject:
        await subject.until_settled()
    assert [stored.spec.devices for stored in subject.slices] == [None]


async def test_a_restart_with_equal_facts_writes_nothing(
    client: KubeClient, state: ApiState
) -> None:
    """The slices of the run before are adopted as they are, and stay when the run ends."""
    pool = devices(70, taint="minor")
    async with publishing(client, state, pool) as before:
        await before.until_settled()
    stored = before.slices
    written = before.writes
    async with publishing(client, state, pool) as after:
        await after.until_settled()
    assert (after.writes, after.slices) == (written, stored)


async def test_a_change_is_written_in_place(client: KubeClient, state: ApiState) -> None:
    """A new fact about one device updates its slice and keeps the generation."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        (before,) = subject.slices
        subject.publish(devices(2, taint="major"))
        await subject.until_stored(lambda slices: slices != (before,))
        status = await subject.until_settled()
    (after,) = subject.slices
    assert after.metadata.name == before.metadata.name
    assert status.generation == 1
    assert subject.writes == 2


async def test_a_burst_ends_with_the_newest_pool(client: KubeClient, state: ApiState) -> None:
    """Pools that were replaced before they could be written are left out."""
    async with publishing(client, state, devices(1)) as subject:
        await subject.until_settled()
        for count in range(2, 12):
            subject.publish(devices(count))
        await subject.until(lambda status: status.devices == 11)
    assert subject.slices[0].spec.devices == devices(11)
    assert subject.writes == 2


@pytest.mark.parametrize("count", [1, 70])
async def test_a_deleted_slice_comes_back(count: int, client: KubeClient, state: ApiState) -> None:
    """What someone deletes is there again, complete, in one generation."""
    async with publishing(client, state, devices(count)) as subject:
        await subject.until_settled()
        before = subject.slices
        state.remove(ResourceSlice, before[0].metadata.name)
        await subject.until_stored(lambda slices: len(slices) == len(before))
        await subject.until_settled()
        generations = {stored.spec.pool.generation for stored in subject.slices}
    assert len(generations) == 1
    assert sum(len(stored.spec.devices or ()) for stored in subject.slices) == count


async def test_all_slices_of_the_node_deleted_come_back(
    client: KubeClient, state: ApiState
) -> None:
    """The kubelet deletes all slices of its node when it starts; they are published anew."""
    async with publishing(client, state, devices(70)) as subject:
        await subject.until_settled()
        for stored in subject.slices:
            state.remove(ResourceSlice, stored.metadata.name)
        await subject.until_stored(lambda slices: len(slices) == 2)


async def test_an_edited_slice_is_repaired(client: KubeClient, state: ApiState) -> None:
    """What someone edits is put right; labels that are not ours stay."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        (stored,) = subject.slices
        spec = stored.spec.model_copy(update={"devices": devices(1)})
        metadata = stored.metadata.model_copy(update={"labels": {"a": "b"}})
        state.put(stored.model_copy(update={"spec": spec, "metadata": metadata}))
        await subject.until_stored(lambda slices: slices[0].spec.devices == devices(2))
    assert subject.slices[0].metadata.labels == {"a": "b"}


async def test_a_fight_does_not_hold_up_facts(client: KubeClient, state: ApiState) -> None:
    """Against someone who edits again and again repairs slow down, a new pool is written at once.

    The third repair would wait a second, the fourth two.
    """
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        for _ in range(3):
            (stored,) = subject.slices
            spec = stored.spec.model_copy(update={"devices": devices(1)})
            state.put(stored.model_copy(update={"spec": spec}))
            await subject.until_stored(lambda slices: slices[0].spec.devices == devices(2))
        (stored,) = subject.slices
        spec = stored.spec.model_copy(update={"devices": devices(1)})
        state.put(stored.model_copy(update={"spec": spec}))
        subject.publish(devices(3))
        await subject.until_stored(lambda slices: slices[0].spec.devices == devices(3))


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


async def test_a_conflict_is_planned_anew(client: KubeClient, state: ApiState) -> None:
    """A write refused because the slice changed meanwhile is planned on the newest slice."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
        state.fail_next(status=409, verb="update")
        subject.publish(devices(3))
        await subject.until_stored(lambda slices: slices[0].spec.devices == devices(3))


async def test_a_missing_node_is_waited_for(client: KubeClient, state: ApiState) -> None:
    """Before the node is registered nothing is published, and the status names it."""
    state.remove(Node, "node-1")
    async with publishing(client, state, devices(1)) as subject:
        status = await subject.until(lambda status: bool(status.problem))
        assert "node-1" in status.problem
        assert subject.slices == ()
        state.add(Node(metadata=ObjectMeta(name="node-1")))
        await subject.until_settled()
    assert len(subject.slices) == 1


async def test_a_node_made_anew_owns_the_slices(client: KubeClient, state: ApiState) -> None:
    """The garbage collector takes slices of the Node that is gone; the others are handed over.

    What it has not come to yet is updated with the new Node's uid, the rest created with it.
    """
    async with publishing(client, state, devices(200)) as subject, trio.open_nursery() as nursery:
        await subject.until_settled()
        state.remove(Node, "node-1")
        node = state.add(Node(metadata=ObjectMeta(name="node-1")))
        nursery.start_soon(collect_garbage, state)
        await subject.until_stored(
            lambda slices: [owner(item) for item in slices] == [node.metadata.uid] * 4
        )
        await subject.until_settled()
        assert subject.devices == devices(200)
        assert len({item.spec.pool.generation for item in subject.slices}) == 1
        nursery.cancel_scope.cancel()


async def test_slices_of_others_are_neither_touched_nor_followed(
    client: KubeClient, state: ApiState
) -> None:
    """Of another node, and of another driver on this one, in pools of their own."""
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


async def test_foreign_slices_of_the_driver_are_replaced(
    client: KubeClient, state: ApiState
) -> None:
    """Slices that another driver of our name left under random names go, ours come."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
    (ours,) = subject.slices
    state.remove(ResourceSlice, ours.metadata.name)
    foreign = ObjectMeta(generate_name=f"node-1-{DRIVER}-")
    state.add(ours.with_metadata(foreign))
    async with publishing(client, state, devices(2)) as subject:
        status = await subject.until_settled()
    (stored,) = subject.slices
    assert stored.metadata.name.startswith(f"node-1-{DRIVER}-00000-")
    assert status.generation == 2


async def test_a_slice_of_another_pool_says_nothing_of_ours(
    client: KubeClient, state: ApiState
) -> None:
    """It is deleted; the status has the generation of what stays."""
    async with publishing(client, state, devices(2)) as subject:
        await subject.until_settled()
    (ours,) = subject.slices
    strange = ours.spec.pool.model_copy(update={"name": "old", "generation": 9})
    spec = ours.spec.model_copy(update={"pool": strange})
    state.add(ResourceSlice(metadata=ObjectMeta(generate_name="old-"), spec=spec))
    async with publishing(client, state, devices(2)) as subject:
        status = await subject.until_settled()
    assert subject.slices == (ours,)
    assert status.generation == 1


@pytest.mark.parametrize("dropped", ["taints", "form"])
async def test_what_the_server_changes_is_not_written_again(
    dropped: str, client: KubeClient, state: ApiState, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without taints, or one that writes quantities otherwise, is no endless difference.

    The difference is said once.
    """
    caplog.set_level(logging.WARNING)
    state.kubernetes = WITHOUT_FEATURES if dropped == "taints" else Kubernetes()
    pool = devices(1, taint="major")
    if dropped == "form":
        pool = (Device(name="npu-0", capacity={"memCapacity": DeviceCapacity(value="1024Mi")}),)
    async with publishing(client, state, pool) as subject:
        await subject.until_settled()
        subject.publish((*pool, Device(name="npu-1")))
        await subject.until(lambda status: status.devices == 2)
        subject.publish(pool)
        await subject.until(lambda status: status.devices == 1)
    assert subject.writes == 3
    assert len(caplog.records) == 1


async def test_edits_during_an_outage_are_repaired_after_it(
    client: KubeClient, state: ApiState
) -> None:
    """While the watch is broken the status says so; what happened meanwhile is put right."""
    async with publishing(client, state, devices(1)) as subject:
        await subject.until_settled()
        state.fail_next(status=503, verb="watch")
        state.end_watches()
        await subject.until(lambda status: not status.watching)
        state.remove(ResourceSlice, subject.slices[0].metadata.name)
        state.compact()
        await subject.until_stored(lambda slices: len(slices) == 1)
        await subject.until_settled()
