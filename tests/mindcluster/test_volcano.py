"""Which chips Volcano chose for a pod, and what is written on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.mindcluster.chips import RESOURCE, a3, b4, of_950
from trio_npu_dra.errors import AllocationRefused, Conflict, KubeError, Unavailable
from trio_npu_dra.kube.applied import Container, Pod
from trio_npu_dra.kube.pages import Listed, Unread
from trio_npu_dra.mindcluster.volcano import (
    KUBELETS,
    LATEST,
    REAL,
    TIME,
    VolcanosChoices,
    in_order,
    timed_choices,
)
from trio_npu_dra.npu.model import Board
from trio_npu_dra.observable import Observable
from trio_npu_dra.resources.chooser import Chosen

CHIPS = tuple(b4(number) for number in range(8))


def ids(*numbers: int) -> list[str]:
    """Device ids."""
    return [f"Ascend910-{number}" for number in numbers]


def pod(
    name: str,
    *numbers: int,
    time: object = 5,
    resource: str = RESOURCE,
    limit: object = None,
    **meta: Any,
) -> Pod:
    """A pod for which Volcano chose chips."""
    last = resource.partition("/")[2]
    annotations = {resource: ",".join(f"{last}-{number}" for number in numbers), TIME: str(time)}
    limits = {"cpu": "1", resource: len(numbers) if limit is None else limit}
    return Pod.model_validate(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "annotations": annotations,
                **meta,
            },
            "spec": {"containers": [{}, {"resources": {}}, {"resources": {"limits": limits}}]},
        }
    )


def chosen(*pods: Pod, count: int = 2, resource: str = RESOURCE) -> list[tuple[str, ...]]:
    """The choices: pod and chips."""
    found = timed_choices(pods, resource, count, CHIPS)
    return [(each.pod, *map(str, each.numbers)) for each in in_order(found)]


def test_the_earliest_pod_that_wants_so_many_is_next() -> None:
    """Others wait; of several the time counts, not the order of the list."""
    pods = pod("b", 6, 1, time=7), pod("a", 0, 2, time=6), pod("one", 3, time=1)
    assert chosen(*pods) == [("a", "0", "2"), ("b", "6", "1")]
    assert chosen(*pods, count=1) == [("one", "3")]
    assert chosen(*pods, count=3) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pod("served", 0, 1, time=LATEST),
        pod("untold", 0, 1, time="soon"),
        pod("never", 0, 1, time=""),
        pod("ends", 0, 1, deletionTimestamp="2026-11-22T19:00:00Z"),
        pod("far", 0, 99),
        pod("twice", 1, 1),
        pod("other", 0, 1, resource="huawei.com/npu"),
        pod("fewer", 0, 1, limit="1"),
        pod("bare", 0, 1).model_copy(update={"spec": None}),
        pod("none"),
    ],
    ids=lambda wrong: wrong.metadata.name,
)
def test_what_is_no_choice(wrong: Pod) -> None:
    """A pod that has its chips, one that ends, and what does not fit."""
    assert chosen(wrong) == []


def test_a_950_is_named_by_its_logic_id() -> None:
    """As in baseDeviceInfos."""
    chips = of_950(4, logic_id=0), of_950(5, logic_id=1), a3(0)
    waiting = [pod("a", 0, 1, resource="huawei.com/npu")]
    ((_, found),) = timed_choices(waiting, "huawei.com/npu", 2, chips)
    assert found.numbers == (4, 5)


class Server:
    """Lists pods; notes what is applied to them."""

    def __init__(self, *pods: Pod) -> None:
        self.pods = pods
        self.unread: tuple[Unread, ...] = ()
        self.error: KubeError | None = None
        self.applied: list[Pod] = []

    async def pages(
        self, kind: type[Pod], *, field_selector: str, page: int
    ) -> AsyncGenerator[Listed[Pod], None]:
        """The pods, each on a page of its own."""
        await trio.lowlevel.checkpoint()
        assert page
        assert (kind, field_selector) == (Pod, "spec.nodeName=node-a,status.phase=Pending")
        if self.error:
            raise self.error
        for one in self.pods:
            yield Listed(objects=(one,), unread=(), version="1")
        yield Listed(objects=(), unread=self.unread, version="1")

    async def apply(self, obj: Pod, *, manager: str) -> Pod:
        """Store it."""
        await trio.lowlevel.checkpoint()
        assert manager
        if self.error:
            raise self.error
        self.applied.append(obj)
        return obj


def opened(server: Server) -> VolcanosChoices:
    """Volcano's choices on a node with eight chips."""
    client: Any = server
    return VolcanosChoices(client, Observable(Board(chips=CHIPS)), "node-a")


async def test_a_pod_says_what_it_has_got(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    """And nothing is chosen for it once more, whether that could be written or not."""
    del autojump_clock
    server = Server(pod("a", 4, 5), pod("b", 6, 7, time=9))
    volcano = opened(server)
    first, second = await volcano.choices(RESOURCE, ids(0, 1))
    assert first == Chosen(namespace="ml", pod="a", uid="uid-a", numbers=(4, 5))
    server.error = Unavailable("away")
    volcano.given(first, RESOURCE, ids(1, 0))
    nursery.start_soon(volcano.keep)
    await trio.sleep(10)
    server.error = None
    assert await volcano.choices(RESOURCE, ids(2, 3)) == (second,)
    await trio.sleep(70)
    (written,) = server.applied
    assert written.metadata.uid == "uid-a"
    assert written.metadata.annotations == {
        TIME: str(LATEST),
        REAL: "Ascend910-4,Ascend910-5",
        KUBELETS: "Ascend910-0,Ascend910-1",
    }
    server.error = Conflict("another UID")
    volcano.given(second, RESOURCE, ids(2, 3))
    await trio.sleep(10)
    server.error = None
    await trio.sleep(70)
    assert len(server.applied) == 1
    nursery.cancel_scope.cancel()


async def test_who_cannot_ask_refuses() -> None:
    """Other chips than Volcano chose would be as bad; other resources are not Volcano's."""
    server = Server()
    server.error = Unavailable("list pods: no answer")
    volcano = opened(server)
    with pytest.raises(AllocationRefused, match="Volcano chose is not known: list pods: no answer"):
        await volcano.choices(RESOURCE, ids(0))
    assert await volcano.choices("example.com/odd", ["odd-0"]) == ()


async def test_ids_that_a_waiting_pod_has_are_for_another_container_of_it() -> None:
    """An init container has had them; the chips of the next pod in line are not for this one."""
    server = Server(pod("a", 4), pod("b", 6, time=9))
    volcano = opened(server)
    first, second = await volcano.choices(RESOURCE, ids(0))
    volcano.given(first, RESOURCE, ids(0))
    assert await volcano.choices(RESOURCE, ids(0)) == ()
    assert await volcano.choices(RESOURCE, ids(1)) == (second,)
    for left in ([pod("b", 6)], [pod("a", 4, deletionTimestamp="now"), pod("b", 6)]):
        server.pods = tuple(left)
        assert await volcano.choices(RESOURCE, ids(0)) == (second,)


async def test_a_pod_that_cannot_be_read_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Others get their chips beside it, and it keeps those that it was given."""
    server = Server(pod("a", 4), pod("b", 6, time=9))
    server.unread = (Unread(namespace="evil", name="hog", uid="uid-hog", why="too large"),)
    volcano = opened(server)
    first, second = await volcano.choices(RESOURCE, ids(0))
    assert (first.pod, second.pod) == ("a", "b")
    volcano.given(first, RESOURCE, ids(0))
    server.pods = server.pods[1:]
    server.unread += (Unread(namespace="ml", name="a", uid="uid-a", why="too large"),)
    assert await volcano.choices(RESOURCE, ids(0)) == ()
    assert await volcano.choices(RESOURCE, ids(1)) == (second,)
    assert [vars(line)["pods"] for line in caplog.records] == [["evil/hog"], ["ml/a"]]


@pytest.mark.parametrize(("wanted", "found"), [(None, ["a"]), (2, ["a"]), (1, [])])
def test_all_containers_that_follow_each_other_want_the_same(
    wanted: int | None, found: list[str]
) -> None:
    """The chips of an init container with fewer would be free before it has ended."""
    limits = {} if wanted is None else {RESOURCE: wanted}
    init = [Container.model_validate({"resources": {"limits": limits}}), Container()]
    one = pod("a", 4, 5)
    assert one.spec
    one = one.model_copy(update={"spec": one.spec.model_copy(update={"init_containers": init})})
    assert [each.pod for _, each in timed_choices([one], RESOURCE, 2, CHIPS)] == found
