"""Events at an API server, which may be away or refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.rig.boards import a3, die, partition, split
from dev.site.unhealthy_boards import board, fault, npu
from tests.holds.holding import hold
from trio_npu_dra.agent.holds.hold import Holder, HolderKind, SharedClaim
from trio_npu_dra.agent.report.events import (
    PAUSE_SECONDS,
    QUIET_SECONDS,
    new_event,
    write_events,
)
from trio_npu_dra.agent.report.news import MESSAGE_LIMIT, News, Reason, shared_news
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.kit.api.events import Event, ObjectReference
from trio_npu_dra.kit.base.errors import Conflict, Forbidden, KubeError, Unavailable
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PublisherStatus

NPUS = 8
WELL = board(*(npu(number) for number in range(NPUS)))
UNHEALTHY = board(*(npu(number, fault()) for number in range(NPUS)))


HOLDS = Observable(tuple(hold(f"npu-{n}", n, claim=f"claim-{n}") for n in range(NPUS)))
"""Every NPU is held by a claim of its own."""


class Server:
    """Takes Events; fails as long as a test wants."""

    def __init__(self) -> None:
        self.error: KubeError | None = None
        self.loses_answer = False
        self.asked = 0
        self.events: dict[str, Event] = {}

    async def create(self, event: Event) -> Event:
        """Store an Event."""
        await self._take()
        if event.metadata.name in self.events:
            raise Conflict("it is there")
        self.events[event.metadata.name] = event
        if self.loses_answer:
            self.loses_answer = False
            raise Unavailable("the connection broke")
        return event

    async def update(self, event: Event) -> Event:
        """Replace an Event."""
        await self._take()
        self.events[event.metadata.name] = event
        return event

    async def _take(self) -> None:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def server() -> Server:
    """An API server."""
    return Server()


@pytest.fixture
def shared() -> Observable[Mapping[str, SharedClaim]]:
    """The claims that several pods have."""
    return Observable({})


@pytest.fixture
def set_aside() -> Observable[Mapping[str, str]]:
    """Why records of holders cannot be read."""
    return Observable({})


@pytest.fixture
async def boards(
    server: Server,
    shared: Observable[Mapping[str, SharedClaim]],
    set_aside: Observable[Mapping[str, str]],
    mock_clock: MockClock,  # noqa: ARG001 - time is the tests'
    nursery: trio.Nursery,
) -> AsyncIterator[Observable[Board]]:
    """The Board of a node whose Events are written; it is well."""
    boards = Observable(WELL)
    tell = partial(
        write_events,
        node_name="node-a",
        publisher=Observable(PublisherStatus(node_uid="n")),
        component="npu.huawei.com",
        since=0,
    )
    nursery.start_soon(tell, server, boards, HOLDS, shared, set_aside)
    await wait_all_tasks_blocked()
    yield boards
    nursery.cancel_scope.cancel()


async def test_a_policy_that_changes_is_said_on_the_node_alone(
    server: Server, boards: Observable[Board], caplog: pytest.LogCaptureFixture
) -> None:
    """And in the log; no claim has lost anything."""
    for policy in MultiDiePolicy:
        boards.set(a3(die(0), die(1), policy=policy))
        await wait_all_tasks_blocked()
    (event,) = server.events.values()
    assert (event.involved_object.kind, event.reason, event.type) == (
        "Node",
        "NpuPolicyChanged",
        "Normal",
    )
    (line,) = [record.__dict__ for record in caplog.records]
    assert line["news"] == event.message


async def test_records_that_are_set_aside_are_told_on_the_node(
    server: Server,
    set_aside: Observable[Mapping[str, str]],
    boards: Observable[Board],
    mock_clock: MockClock,
) -> None:
    """In one Event, each once: not when one of them has ended."""
    del boards
    for found in (
        {"uid-a": "it is empty"},
        {"uid-a": "it is empty", "uid-b": "[]"},
        {"uid-b": "[]"},
    ):
        set_aside.set(found)
        await wait_all_tasks_blocked()
        mock_clock.jump(PAUSE_SECONDS)
        await wait_all_tasks_blocked()
    (event,) = server.events.values()
    assert (event.involved_object.kind, event.reason, event.type, event.count) == (
        "Node",
        "NpuRecordSetAside",
        "Warning",
        2,
    )
    assert "of uid-a: it is empty; of uid-b: []" in event.message


async def test_a_claim_that_several_pods_have_is_told(
    server: Server,
    shared: Observable[Mapping[str, SharedClaim]],
    boards: Observable[Board],
    mock_clock: MockClock,
) -> None:
    """That claim alone, once for each change of its pods; not if its NPUs may be shared."""

    async def reserve(*pods: str) -> None:
        holder = Holder(kind=HolderKind.CLAIM, namespace="jobs", name="one", uid="u")
        claim = SharedClaim(holder=holder, devices=("npu-0", "npu-1"), pods=pods)
        shared.set({"u": claim})
        await wait_all_tasks_blocked()

    boards.set(board(*(replace(chip, device_share=True) for chip in WELL.chips)))
    await reserve("a", "b")
    assert server.events == {}

    boards.set(board(replace(WELL.chips[0], device_share=True), *WELL.chips[1:]))
    await reserve("a", "b", "c")
    (event,) = server.events.values()
    assert (event.involved_object.kind, event.involved_object.name) == ("ResourceClaim", "one")
    assert (event.type, event.reason) == ("Warning", "NpuForSeveralPods")
    assert event.message.startswith(
        "npu-1: reserved for several pods (a; b; c), but the Ascend driver"
    )

    await reserve(*(f"pod-{number:060}" for number in range(256)))
    mock_clock.jump(PAUSE_SECONDS)
    await wait_all_tasks_blocked()
    (event,) = server.events.values()
    assert event.count == 2
    assert len(event.message) <= MESSAGE_LIMIT


def test_a_partition_is_for_one_pod_though_its_chip_is_shared() -> None:
    """The share flag says who may open the chip."""
    holder = Holder(kind=HolderKind.CLAIM, namespace="jobs", name="one", uid="u")
    claim = SharedClaim(holder=holder, devices=("npu-0-vnpu-100",), pods=("a", "b"))
    chip = replace(split(die(0), partition(100)), device_share=True)
    item = shared_news(claim, a3(chip, policy=MultiDiePolicy.INDEPENDENT), ())
    assert item is not None
    assert item.message.startswith("npu-0-vnpu-100: reserved for several pods")


async def test_a_storm_is_a_bounded_number_of_writes(
    server: Server, boards: Observable[Board], mock_clock: MockClock
) -> None:
    """200 Boards in ten seconds: one write for each series in the beginning, and one at the end."""
    series = NPUS * len(("Node", "ResourceClaim")) * len(("NpuFault", "NpuRecovered"))
    for number in range(200):
        boards.set(UNHEALTHY if number % 2 == 0 else WELL)
        await wait_all_tasks_blocked()
        if number % 20 == 0:
            mock_clock.jump(0.9)
    assert server.asked == series

    mock_clock.jump(PAUSE_SECONDS)
    await wait_all_tasks_blocked()
    assert server.asked == 2 * series
    assert len(server.events) == series
    assert {event.count for event in server.events.values()} == {100}


async def test_an_api_server_that_is_away_hears_the_newest_later(
    server: Server,
    boards: Observable[Board],
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It gets each Event once, with all counts, however long it was away; one task asks for it."""
    caplog.set_level("INFO")
    mock_clock.autojump_threshold = 0
    server.error = Unavailable("away")
    for _ in range(3):
        boards.set(UNHEALTHY)
        await trio.sleep(1)
        boards.set(WELL)
        await trio.sleep(1)
    await trio.sleep(2 * QUIET_SECONDS)
    assert server.asked < QUIET_SECONDS
    server.error = None
    await trio.sleep(PAUSE_SECONDS)
    assert caplog.text.count("writing Events works again") == 1

    assert {event.count for event in server.events.values()} == {3}


async def test_a_refusal_costs_one_event_only(
    server: Server, boards: Observable[Board], caplog: pytest.LogCaptureFixture
) -> None:
    """A namespace that is being deleted takes no Events; the others get theirs."""
    server.error = Forbidden("namespace is being terminated", status=403)
    boards.set(UNHEALTHY)
    await wait_all_tasks_blocked()
    server.error = None
    boards.set(WELL)
    await wait_all_tasks_blocked()

    assert caplog.text.count("Event not written") == 2 * NPUS
    assert {event.reason for event in server.events.values()} == {"NpuRecovered"}


async def test_an_event_that_is_there_is_updated(
    server: Server, boards: Observable[Board], mock_clock: MockClock
) -> None:
    """The API server stored it and the connection broke: the next try finds it there."""
    mock_clock.autojump_threshold = 0
    server.loses_answer = True
    boards.set(board(npu(0, fault()), *WELL.chips[1:]))
    await trio.sleep(60)
    assert [event.count for event in server.events.values()] == [1, 1]  # of Node and claim
    assert server.asked == len(("lost", "conflict", "update", "the claim's"))


async def test_after_a_quiet_time_it_is_a_new_event(
    server: Server, boards: Observable[Board], mock_clock: MockClock
) -> None:
    """What happened yesterday is another story; until then the same Event counts on."""
    mock_clock.autojump_threshold = 0
    for pause in (PAUSE_SECONDS, QUIET_SECONDS / 2, QUIET_SECONDS + PAUSE_SECONDS):
        await trio.sleep(pause)
        boards.set(board(npu(0, fault()), *WELL.chips[1:]))
        await wait_all_tasks_blocked()
        boards.set(WELL)
        await trio.sleep(PAUSE_SECONDS)
    of_faults = [event for event in server.events.values() if event.reason == "NpuFault"]
    assert sorted(event.count for event in of_faults) == [1, 1, 2, 2]


async def test_a_second_chip_has_an_event_of_its_own(
    server: Server, boards: Observable[Board]
) -> None:
    """It is not counted with the first one, whose message would hide it."""
    for faulty in (1, 2):
        boards.set(board(*(npu(n, *([fault()] if n < faulty else [])) for n in range(NPUS))))
        await wait_all_tasks_blocked()
    of_node = [one for one in server.events.values() if one.involved_object.kind == "Node"]
    assert [(event.message[:6], event.count) for event in of_node] == [("npu-0:", 1), ("npu-1:", 1)]


def test_an_event_has_what_describe_shows() -> None:
    """Type, reason, age, source and message, in the object's namespace or `default`."""
    fault = News(about="npu-3", reason=Reason.FAULT, message="npu-3: first words")
    node = ObjectReference(api_version="v1", kind="Node", name="node-a", uid="n")
    clock = "2026-11-21T12:00:00Z"
    event = new_event(fault, node, clock, "npu.huawei.com", "node-a")
    wire = event.to_wire()

    name = wire["metadata"].pop("name")
    assert name.startswith("node-a.")
    assert wire == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "n"},
        "type": "Warning",
        "reason": "NpuFault",
        "message": "npu-3: first words",
        "count": 1,
        "firstTimestamp": clock,
        "lastTimestamp": clock,
        "source": {"component": "npu.huawei.com", "host": "node-a"},
        "reportingComponent": "npu.huawei.com",
        "reportingInstance": "node-a",
    }


def test_a_long_name_leaves_room() -> None:
    """An Event's name may have 253 characters."""
    recovered = News(about="npu-3", reason=Reason.RECOVERED, message="")
    long = "a" * 229 + "-" + "b" * 23
    about = ObjectReference(kind="ResourceClaim", namespace="ml", name=long)
    event = new_event(recovered, about, "", "c", "n")
    assert (event.type, event.metadata.namespace) == ("Normal", "ml")
    assert len(event.metadata.name) <= 253
    assert "-." not in event.metadata.name
