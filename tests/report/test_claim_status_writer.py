"""The status of claims at an API server, which may be away or refuse."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests.holds.entries import chip, entry
from tests.turns import turns
from trio_npu_dra.agent.devices.npu_status import ClaimStatusWritten
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.agent.report.claim_status import Reported
from trio_npu_dra.agent.report.claim_status_writer import (
    AGAIN_SECONDS,
    LATEST_SECONDS,
    QUIET_SECONDS,
    write_claim_statuses,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import (
    HEALTHY,
    Board,
    Chip,
    ChipFamily,
    ChipHealth,
    Fault,
    FaultLevel,
)
from trio_npu_dra.ascend.root_info import ROOT_INFO
from trio_npu_dra.ascend.traits import TOPOLOGY_FOLDER
from trio_npu_dra.kit.api.objects import (
    DeviceStatus,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
)
from trio_npu_dra.kit.base.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unavailable,
    Unreadable,
)
from trio_npu_dra.kit.base.observable import LAZY_SECONDS, Observable
from trio_npu_dra.kit.base.pace import AT_ONCE, PER_SECOND

SOON = 1.0
"""More than changes and repeated tries take."""

ILL = ChipHealth(faults=(Fault(code=1, level=FaultLevel.SEPARATE_NPU, rule="code", since=0),))


@dataclass
class Node:
    """A node with NPU 0 to 3, and the API server to which it writes.

    Attributes:
        error: What the API server answers to a write.
        about: Of which claims, by name; empty for all.
        unread: What it answers to reads, one after the other, before it tells.
        stored: What it has of our devices, by the claim's name.
        reads: The claims that it was asked for.
        written: What it took, or refused.
        times: When (trio's clock).
        on_write: Called then.
        events: What was reported of that.
    """

    ledger: Ledger
    host: Host
    board: Observable[Board] = field(default_factory=lambda: Observable(with_npu(chip(0))))
    calls: Observable[int] = field(default_factory=lambda: Observable(0))
    reported: Reported = field(default_factory=lambda: Observable({}))
    error: KubeError | None = None
    about: frozenset[str] = frozenset()
    unread: list[KubeError] = field(default_factory=list)
    stored: dict[str, tuple[DeviceStatus, ...]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    written: list[ResourceClaim] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    on_write: Callable[[], object] = lambda: None
    events: list[str] = field(default_factory=list)

    async def get(
        self, kind: type[ResourceClaim], name: str, namespace: str, *, is_cached: bool
    ) -> ResourceClaim:
        """Read a claim, as the client does; it has a device of another driver, too."""
        await trio.lowlevel.checkpoint()
        assert namespace == "default"
        assert is_cached
        self.reads.append(name)
        if self.unread:
            raise self.unread.pop(0)
        theirs = DeviceStatus(driver="gpu.example.com", pool="node-1", device="gpu-0")
        return kind(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=name),
            status=ResourceClaimStatus(devices=(theirs, *self.stored.get(name, ()))),
        )

    async def apply(self, claim: ResourceClaim, *, manager: str, subresource: str) -> None:
        """Take the status of a claim, as the client does."""
        await trio.lowlevel.checkpoint()
        assert (manager, subresource) == ("npu.huawei.com", "status")
        self.written.append(claim)
        self.times.append(trio.current_time())
        self.on_write()
        if self.error is not None and claim.metadata.name in (self.about or {claim.metadata.name}):
            raise self.error
        self.stored[claim.metadata.name or ""] = claim.status.devices

    @asynccontextmanager
    async def written_to(self) -> AsyncIterator[None]:
        """The writer runs inside."""

        def note(fact: ClaimStatusWritten) -> None:
            self.events.append(type(fact.error).__name__ if fact.error else "ok")

        async def run() -> None:
            await write_claim_statuses(
                self,  # type: ignore[arg-type] # has what it needs of a client
                self.board,
                self.ledger,
                self.calls,
                self.reported,
                driver_name="npu.huawei.com",
                host=self.host,
                on_event=note,
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(SOON)
            yield
            nursery.cancel_scope.cancel()

    async def restart(self) -> None:
        """Another daemon, which knows only the records, writes what it has to."""
        self.reported = Observable({})
        async with self.written_to():
            pass

    async def hold(self, *entries: Entry) -> None:
        """Prepare claims, which reads them, and answer."""
        read = {one.uid: self.stored.get(one.uid, ()) for one in entries}
        self.reported.set({**self.reported.value, **read})
        async with self.ledger.exclusive():
            for one in entries:
                self.ledger.put(one)
        await self.settle()

    async def settle(self) -> None:
        """Let a call of the kubelet end, and see what follows."""
        self.calls.set(self.calls.value + 1)
        await trio.sleep(SOON)

    async def become(self, npu: Chip) -> None:
        """NPU 0 changes."""
        self.board.set(with_npu(npu))
        await trio.sleep(SOON)

    @property
    def names(self) -> list[str]:
        """Of the claims that were written."""
        return [claim.metadata.name for claim in self.written]


def with_npu(npu: Chip) -> Board:
    """A Board with NPU 0 like this."""
    return Board(chips=(npu, *map(chip, range(1, 4))))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose writer does not run yet."""
    return Node(Ledger(tmp_path / "state"), Host(host_root=tmp_path))


async def test_a_claim_is_written_once_and_again_when_its_facts_change(
    node: Node, autojump_clock: MockClock
) -> None:
    """All its devices together; nothing at a restart, at another call, or by other changes.

    One with steps is not ready. Of what was read for a prepare there is no other read, and one of
    each claim after a start.
    """
    del autojump_clock
    async with node.written_to():
        await node.hold(entry("a", 0, 1), replace(entry("b", 2), state=EntryState.INTENDED))
        await node.settle()
        await node.become(replace(chip(0), device_share=True))
        assert node.names == ["a"]
        assert node.written[0].metadata.uid == "a"
        assert [one.device for one in node.written[0].status.devices] == ["npu-0", "npu-1"]
        await node.become(replace(chip(0), health=ILL))
        await node.become(replace(chip(0), health=ILL, super_pod_id=7))
        await node.hold(entry("b", 2))
        assert node.names == ["a", "a", "a", "b"]
        assert node.reads == []
    await node.restart()
    assert node.names == ["a", "a", "a", "b"]
    assert node.events == ["ok"] * 4
    assert sorted(node.reads) == ["a", "b"]


async def test_a_start_writes_what_is_not_written_yet(
    node: Node, autojump_clock: MockClock
) -> None:
    """A daemon died between a prepare and the write, or facts changed while none was there.

    Or a claim was allocated anew. `Ready` keeps its time unless it changes.
    """
    del autojump_clock
    await node.hold(entry("a"), entry("b", 1), entry("c", 2))
    await node.restart()
    assert node.names == ["a", "b", "c"]
    (status,) = node.stored["c"]
    long_ago = status.conditions[0].model_copy(update={"last_transition_time": "then"})
    node.stored["c"] = (status.model_copy(update={"conditions": (long_ago,), "data": None}),)
    del node.stored["b"]
    node.board.set(with_npu(replace(chip(0), health=ILL)))
    await node.restart()
    assert node.names == ["a", "b", "c"] * 2
    assert node.written[3].status.devices[0].conditions[0].status == "False"
    assert node.written[5].status.devices[0].conditions == (long_ago,)


async def test_a_claim_that_cannot_be_read_at_a_start_is_read_again(
    node: Node, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """While the API server is away; what it then tells is not written again."""
    del autojump_clock
    caplog.set_level(logging.INFO)
    await node.hold(entry("a"), entry("b", 1))
    await node.restart()
    node.unread, node.reported = [Unavailable("away")] * 3, Observable({})
    async with node.written_to():
        await trio.sleep(20)
    assert node.names == ["a", "b"]
    assert len(node.reads) == 2 + 3 + 2
    assert caplog.messages[-1] == "writing the status of claims works again"


@pytest.mark.parametrize("error", [Unreadable("odd"), Forbidden("no"), NotFound("gone")])
async def test_a_claim_that_is_never_read_is_written_all_the_same(
    node: Node, autojump_clock: MockClock, error: KubeError
) -> None:
    """Its author can have it so; it holds up no other claim."""
    del autojump_clock
    await node.hold(entry("a"), entry("b", 1))
    await node.restart()
    node.unread = [error]
    await node.restart()
    assert sorted(node.names) == sorted(["a", "b", node.reads[2]])
    assert node.names[2] == node.reads[2]


async def test_other_tasks_have_their_turns_while_hundreds_of_claims_are_looked_at(
    node: Node, autojump_clock: MockClock
) -> None:
    """A node can have that many, and what follows a fault must not wait for all of them."""
    del autojump_clock
    async with node.ledger.exclusive():
        for number in range(300):
            node.ledger.put(entry(f"c{number}", admin_access=True))
    async with node.written_to():
        with turns() as counted:
            await node.settle()
    assert counted.count >= 300
    assert node.names == []


async def test_what_a_read_shows_counts(node: Node, autojump_clock: MockClock) -> None:
    """Somebody changed what we wrote, or it is there already."""
    del autojump_clock
    async with node.written_to():
        await node.hold(entry("a"))
        (status,) = node.written[0].status.devices
        node.reported.set({"a": (status.model_copy(update={"data": None}),)})
        await trio.sleep(SOON)
        assert node.names == ["a", "a"]
        node.stored["b"] = (status,)
        await node.hold(entry("b"))
    await node.restart()
    assert node.names == ["a", "a"]


@pytest.mark.parametrize(
    ("calls", "waits"),
    [(5, 5 * QUIET_SECONDS / 2), (10_000, LATEST_SECONDS)],
    ids=["a burst", "calls without end"],
)
async def test_a_write_waits_while_calls_come(
    node: Node, autojump_clock: MockClock, calls: int, waits: float
) -> None:
    """For a while: no status waits for long."""
    del autojump_clock
    async with node.written_to(), trio.open_nursery() as nursery:

        async def call() -> None:
            for _ in range(calls):
                node.calls.set(node.calls.value + 1)
                await trio.sleep(QUIET_SECONDS / 2)

        since = trio.current_time()
        nursery.start_soon(call)
        async with node.ledger.exclusive():
            node.ledger.put(entry("a"))
            node.ledger.put(entry("b", 1))
        await trio.sleep(2 * LATEST_SECONDS)
        nursery.cancel_scope.cancel()
    assert node.names == ["a", "b"]
    for time in node.times:
        assert waits <= time - since <= waits + LAZY_SECONDS + QUIET_SECONDS


async def test_calls_between_two_writes_go_first(node: Node, autojump_clock: MockClock) -> None:
    """They come when the first status of several is on its way."""
    del autojump_clock
    node.on_write = lambda: node.calls.set(node.calls.value + 1)
    async with node.written_to():
        await node.hold(entry("a"), entry("b", 1))
    first, second = node.times
    assert second - first > QUIET_SECONDS / 2


async def test_a_storm_of_changes_costs_few_writes(node: Node, autojump_clock: MockClock) -> None:
    """As many as it costs slices; the last ones say what is true in the end."""
    del autojump_clock
    seconds, step = 10, 0.17  # no pass finds all as the last one did
    async with node.written_to():
        await node.hold(*(entry(f"uid-{number}", number) for number in range(4)))
        for turn in range(int(seconds / step)):
            health = ILL if turn % 2 else HEALTHY
            chips = tuple(replace(chip(number), health=health) for number in range(4))
            node.board.set(Board(chips=chips))
            await trio.sleep(step)
        await trio.sleep(SOON)
    assert len(node.written) <= AT_ONCE + (seconds + 2 * SOON) * PER_SECOND
    last = {one.metadata.name: one.status.devices[0].conditions[0] for one in node.written}
    assert [one.status for one in last.values()] == ["False"] * 4


async def test_levels_that_come_later_are_written(node: Node, autojump_clock: MockClock) -> None:
    """Nothing tells of the root info of a 950, which a tool of Huawei's writes some time."""
    del autojump_clock
    levels = [{"net_layer": 0}]
    topology = node.host.host_root / f"{TOPOLOGY_FOLDER[1:]}/atlas_950.json"
    root_info = node.host.host_root / ROOT_INFO[1:]
    for path in (topology, root_info):
        path.parent.mkdir(parents=True)
    topology.write_text("{}")
    node.board.set(with_npu(chip(0, ChipFamily.ASCEND_950)))
    async with node.written_to():
        await node.hold(entry("a"))
        rank = {"device_id": 0, "level_list": levels}
        info = {"version": "2.0", "topo_file_path": f"{TOPOLOGY_FOLDER}/{topology.name}"}
        root_info.write_text(json.dumps(info | {"rank_list": [rank]}))
        await trio.sleep(AGAIN_SECONDS + SOON)
    found = [claim.status.devices[0].data for claim in node.written]
    assert [one.get("levels") for one in found] == [None, levels]


@pytest.mark.parametrize(
    "error",
    [
        NotFound("gone"),
        Conflict("other"),
        Invalid("apply status of resourceclaims resourceclaims/driver: it is not allocated"),
    ],
)
async def test_a_claim_that_is_another_one_is_forgotten(
    node: Node, autojump_clock: MockClock, error: KubeError
) -> None:
    """Until its facts change."""
    del autojump_clock
    node.error = error
    async with node.written_to():
        await node.hold(entry("a"))
        await trio.sleep(2 * AGAIN_SECONDS)
        assert node.names == ["a"]
        await node.become(replace(chip(0), health=ILL))
        assert node.names == ["a", "a"]
    assert node.events == [type(error).__name__] * 2


@pytest.mark.parametrize(
    "error",
    [
        Forbidden('cannot patch resource "resourceclaims/status"'),
        Invalid(
            "status.devices: Forbidden: changing status.devices requires "
            'resource="resourceclaims/driver", verb="[arbitrary-node:patch]" permission: ...'
        ),
    ],
)
async def test_a_missing_right_is_said_once_and_tried_later(
    node: Node, autojump_clock: MockClock, error: KubeError, caplog: pytest.LogCaptureFixture
) -> None:
    """For each claim by itself, and with the facts that are the newest then."""
    del autojump_clock
    node.error = error
    async with node.written_to():
        await node.hold(entry("a"), entry("b", 1))
        await node.become(replace(chip(0), health=ILL))
        assert node.names == ["a", "b"]
        await trio.sleep(AGAIN_SECONDS / 2)
        await node.settle()
        await trio.sleep(AGAIN_SECONDS / 2)
        assert node.names == ["a", "b"] * 2
        node.error = None
        await trio.sleep(AGAIN_SECONDS)
        await trio.sleep(AGAIN_SECONDS)
    assert node.names == ["a", "b"] * 3
    assert node.written[-2].status.devices[0].conditions[0].status == "False"
    assert [
        record.levelno for record in caplog.records if "status of claims" in record.message
    ] == [logging.WARNING]


async def test_claims_that_always_fail_hold_up_no_others(
    node: Node, autojump_clock: MockClock
) -> None:
    """Their authors can have it so: they make them as large as etcd takes them.

    What is written at last is the newest, and nothing of a claim that ended meanwhile.
    """
    del autojump_clock
    node.error = Unavailable("etcdserver: request is too large", status=500)
    node.about = frozenset("ab")
    async with node.written_to():
        await node.hold(entry("a"), entry("b", 1), entry("c", 2))
        await trio.sleep(60)
        await node.hold(entry("d", 3))
        await trio.sleep(10)
        assert [name for name in node.names if name in "cd"] == ["c", "d"]
        await node.become(replace(chip(0), health=ILL))
        async with node.ledger.exclusive():
            node.ledger.remove("b")
        await trio.sleep(60)
        node.error, before = None, len(node.written)
        await trio.sleep(60)
    assert node.names[before:] == ["a"]
    assert node.written[-1].status.devices[0].conditions[0].status == "False"


async def test_nothing_is_left_of_claims_that_ended(node: Node, autojump_clock: MockClock) -> None:
    """Nor of one that was read and never prepared."""
    del autojump_clock
    async with node.written_to():
        await node.hold(entry("a"), entry("b", 1))
        node.reported.set({**node.reported.value, "c": ()})
        async with node.ledger.exclusive():
            node.ledger.remove("a")
        await node.settle()
        assert node.reported.value.keys() == {"b"}
    assert node.names == ["a", "b"]
