"""Which chips Volcano chose for a pod, and what is written on it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.mindcluster.chips import NETWORK, RESOURCE, a3, b4, of_950
from trio_npu_dra.agent.device_plugin.chooser import ChosenChips
from trio_npu_dra.agent.mindcluster.pod_configuration import CONFIGURATION
from trio_npu_dra.agent.mindcluster.volcano import (
    KUBELETS,
    LATEST,
    REAL,
    TIME,
    VolcanosChoices,
    choices_on,
)
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.api.nodes import FullNode
from trio_npu_dra.kit.api.pages import Listed, Unread
from trio_npu_dra.kit.api.pods import Pod, PodMetadata, PodSpec
from trio_npu_dra.kit.base.errors import AllocationRefused, Conflict, KubeError, Unavailable
from trio_npu_dra.kit.base.observable import Observable

CHIPS = tuple(b4(number, network=NETWORK if number == 4 else None) for number in range(8))


def pod(
    name: str,
    *numbers: int,
    time: object = 5,
    resource: str = RESOURCE,
    limits: Sequence[object] | None = None,
    init: Sequence[object] = (),
    **meta: Any,
) -> Pod:
    """A pod for which Volcano chose chips; one of its containers wants them unless told."""
    last = resource.partition("/")[2]
    annotations = {resource: ",".join(f"{last}-{number}" for number in numbers), TIME: str(time)}

    def containers(wanted: Sequence[object]) -> list[Any]:
        of_npus = [{"resources": {"limits": {"cpu": "1", resource: one}}} for one in wanted]
        return [{}, {"resources": {}}, *of_npus]

    return Pod.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "annotations": annotations,
                **meta,
            },
            "spec": {
                "containers": containers([len(numbers)] if limits is None else limits),
                "initContainers": containers(init),
            },
        }
    )


class Server:
    """Lists pods; notes what is applied to them."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.newer: tuple[Pod, ...] | None = None  # made since the metadata was listed
        self.unread: set[str] = set()
        self.error: KubeError | None = None
        self.applied: list[Pod] = []
        self.read: list[str] = []
        self.nodes_read = 0
        self.address = "10.0.0.9"

    async def get(self, kind: type[FullNode], name: str) -> FullNode:
        """The Node."""
        await trio.lowlevel.checkpoint()
        self.nodes_read += 1
        addresses = [
            {"type": "Hostname", "address": name},
            *([{"type": "InternalIP", "address": self.address}] if self.address else []),
        ]
        return kind.model_validate({"metadata": {"name": name}, "status": {"addresses": addresses}})

    async def pages(
        self, kind: type[PodMetadata], *, field_selector: str, page: int
    ) -> AsyncGenerator[Listed[PodMetadata], None]:
        """The metadata of pods, each on a page of its own."""
        await trio.lowlevel.checkpoint()
        assert page
        assert (kind, field_selector) == (PodMetadata, "spec.nodeName=node-a,status.phase=Pending")
        if self.error:
            raise self.error
        for one in self.pods:
            yield Listed(objects=(PodMetadata(metadata=one.metadata),), unread=(), version="1")

    async def list_all(
        self, kind: type[Pod], *, namespace: str, field_selector: str, page: int
    ) -> Listed[Pod]:
        """One pod."""
        await trio.lowlevel.checkpoint()
        name = field_selector.removeprefix("metadata.name=")
        assert (kind, namespace, page) == (Pod, "ml", 1)
        self.read.append(name)
        if name in self.unread:
            lost = Unread(namespace="ml", name=name, uid=f"uid-{name}", why="too large")
            return Listed(objects=(), unread=(lost,), version="1")
        pods = self.pods if self.newer is None else self.newer
        objects = tuple(one for one in pods if one.metadata.name == name)
        return Listed(objects=objects, unread=(), version="1")

    async def apply(self, obj: Pod, *, manager: str) -> None:
        """Store it."""
        await trio.lowlevel.checkpoint()
        assert manager
        if self.error:
            raise self.error
        self.applied.append(obj)


def opened(server: Server) -> VolcanosChoices:
    """Volcano's choices on a node with eight chips."""
    client: Any = server
    return VolcanosChoices(client, Observable(Board(chips=CHIPS)), "node-a")


async def chosen(*pods: Pod, count: int = 2, resource: str = RESOURCE) -> list[tuple[str, ...]]:
    """The choices: pod and chips."""
    found = await opened(Server(*pods)).choices(resource, count)
    return [(each.pod, *map(str, each.numbers)) for each in found]


async def test_the_earliest_pod_that_wants_so_many_is_next() -> None:
    """The time counts, not the order of the list."""
    pods = pod("b", 6, 1, time=7), pod("a", 0, 2, time=6), pod("one", 3, time=1)
    assert await chosen(*pods) == [("a", "0", "2"), ("b", "6", "1")]
    assert await chosen(*pods, count=1) == [("one", "3")]
    assert await chosen(*pods, count=3) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pod("untold", 0, 1, time="soon"),
        pod("never", 0, 1, time=""),
        pod("ends", 0, 1, deletionTimestamp="2026-11-22T19:00:00Z"),
        pod("far", 0, 99),
        pod("twice", 1, 1),
        pod("other", 0, 1, resource="huawei.com/npu"),
        pod("fewer", 0, 1, limits=["1"]),
        pod("strange", 0, 1, limits=["2k"]),
        pod("more", 0, 1, 2, 3, limits=["2"]),
        pod("several", 0, 1, limits=["2", "2"]),
        pod("idle", 0, 1, limits=[]),
        pod("bare", 0, 1).model_copy(update={"spec": PodSpec()}),
        pod("none"),
    ],
    ids=lambda wrong: wrong.metadata.name,
)
async def test_what_is_no_choice(wrong: Pod) -> None:
    """A pod that ends, what names other chips than there are, or not as many as it wants."""
    assert await chosen(wrong) == []


@pytest.mark.parametrize(
    ("init", "limits", "counts"),
    [
        ([], ["4"], [4]),
        ([], [2, 2], [2]),
        ([4], [4], [4]),
        ([1], [3, 1], [1, 3]),
        ([4], [2], []),
        ([5], [4], []),
    ],
)
async def test_a_choice_is_for_all_containers_of_a_pod(
    init: list[object], limits: list[object], counts: list[int]
) -> None:
    """Each may ask. An init container may want no more than the others, for which Volcano chose."""
    server = Server(pod("a", 0, 1, 2, 3, init=init, limits=limits))
    volcano = opened(server)
    found = {count: await volcano.choices(RESOURCE, count) for count in range(1, 6)}
    assert [count for count, some in found.items() if some] == counts
    assert server.read == ["a"]  # once: that cannot change


async def test_a_pod_that_is_served_is_known() -> None:
    """It may have more containers; it waits for nothing."""
    volcano = opened(Server(pod("a", 4, time=LATEST), pod("b", 5, time=7)))
    found = await volcano.choices(RESOURCE, 1)
    assert [(one.pod, one.is_served) for one in found] == [("b", False), ("a", True)]


def test_a_950_is_named_by_its_logic_id() -> None:
    """As in baseDeviceInfos."""
    chips = of_950(4, logic_id=0), of_950(5, logic_id=1), a3(0, logic_id=6)
    waiting = PodMetadata(metadata=pod("a", 0, 1, resource="huawei.com/npu").metadata)
    (found,) = choices_on([waiting], "huawei.com/npu", chips)
    assert found.numbers == (4, 5)
    (found,) = choices_on([PodMetadata(metadata=pod("b", 0).metadata)], RESOURCE, chips)
    assert found.numbers == (0,)


async def test_a_pod_says_what_it_has_got(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """As soon as that can be written, and once."""
    del autojump_clock
    caplog.set_level("INFO")
    server = Server(pod("a", 5, 4), pod("b", 6, 7, time=9))
    volcano = opened(server)
    first, second = await volcano.choices(RESOURCE, 2)
    assert first == ChosenChips(
        namespace="ml", pod="a", uid="uid-a", numbers=(5, 4), time=5, is_served=False
    )
    server.error = Unavailable("away")
    volcano.given(first, RESOURCE)
    nursery.start_soon(volcano.keep)
    await trio.sleep(10)
    server.error = None
    await trio.sleep(70)
    (written,) = server.applied
    assert written.metadata.uid == "uid-a"
    annotations = dict(written.metadata.annotations)
    assert json.loads(annotations.pop(CONFIGURATION)) == {
        "pod_name": "a",
        "server_id": "uid-a",
        "host_ip": "10.0.0.9",
        "server_ip": "10.0.0.9",
        "super_pod_id": -2,
        "server_index": "-2",
        "devices": [
            {"device_id": "4", "device_ip": "192.168.100.4"},
            {"device_id": "5", "device_ip": "-1"},
        ],
    }
    assert annotations == {
        TIME: str(LATEST),
        REAL: "Ascend910-4,Ascend910-5",
        KUBELETS: "Ascend910-4,Ascend910-5",
    }
    assert caplog.records[-1].levelname == "INFO"  # it works again
    server.error = Conflict("another UID")
    volcano.given(second, RESOURCE)
    await trio.sleep(10)
    server.error = None
    await trio.sleep(70)
    assert len(server.applied) == 1
    volcano.given(second, RESOURCE)
    await trio.sleep(70)
    assert [one.metadata.name for one in server.applied] == ["a", "b"]
    assert server.nodes_read == 1
    nursery.cancel_scope.cancel()


async def test_a_node_without_an_address_is_read_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """For the next pod: the kubelet may set it later, or never, and no pod waits for that."""
    del autojump_clock
    server = Server(*(pod(name, number) for number, name in enumerate("abc")))
    volcano = opened(server)
    nursery.start_soon(volcano.keep)
    for address, one in zip(("", "10.0.0.9", ""), await volcano.choices(RESOURCE, 1), strict=True):
        server.address = address
        volcano.given(one, RESOURCE)
        await trio.sleep(1)
    written = [json.loads(one.metadata.annotations[CONFIGURATION]) for one in server.applied]
    assert [one["host_ip"] for one in written] == ["", "10.0.0.9", "10.0.0.9"]
    assert server.nodes_read == 2
    nursery.cancel_scope.cancel()


async def test_an_allocation_is_refused_while_choices_are_not_known() -> None:
    """Other chips than Volcano chose would be as bad; other resources are not Volcano's."""
    server = Server()
    server.error = Unavailable("list pods: no answer")
    volcano = opened(server)
    with pytest.raises(AllocationRefused, match="Volcano chose is not known: list pods: no answer"):
        await volcano.choices(RESOURCE, 1)
    assert await volcano.choices("example.com/odd", 1) == ()


async def test_a_pod_that_cannot_be_read_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Other pods get their chips beside it, and it is not read again."""
    server = Server(pod("hog", 4, time=1), pod("b", 6, time=9), pod("large"))
    server.unread = {"hog", "large"}
    volcano = opened(server)
    for _ in range(2):
        (found,) = await volcano.choices(RESOURCE, 1)
        assert found.pod == "b"
    assert [vars(line)["pod"] for line in caplog.records] == ["ml/hog"]
    assert server.read == ["hog", "b"]


async def test_a_new_pod_of_the_same_name_is_read() -> None:
    """It may want other chips."""
    server = Server(pod("a", 4))
    volcano = opened(server)
    assert await volcano.choices(RESOURCE, 1)
    server.pods = (pod("a", 4, uid="another", limits=["2"]),)
    assert await volcano.choices(RESOURCE, 1) == []
    assert server.read == ["a", "a"]
    server.pods, server.newer = (pod("a", 4, uid="third"),), (pod("a", 4, uid="fourth"),)
    assert await volcano.choices(RESOURCE, 1) == []


async def test_a_pod_that_has_gone_is_forgotten() -> None:
    """Else the driver's memory would grow with each pod."""
    server = Server(pod("a", 4))
    volcano = opened(server)
    for pods in (server.pods, (), server.pods):
        server.pods = pods
        assert len(await volcano.choices(RESOURCE, 1)) == len(pods)
    assert server.read == ["a", "a"]
