"""Orphaned claims are taken back slowly, with few requests."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, DRIVER, FakeClaims, NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.orphans import OrphanedClaims
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.holds.entry import EntryState
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.api.objects import ResourceClaim, ResourceClaimStatus
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import Unavailable

LOOK = 600.0
"""Seconds between two looks at one claim at least."""
LATEST = 1.2 * LOOK + 120
"""Seconds after which a claim that is gone was looked for twice, whenever the looks fell."""


class Busy:
    """Which chips have processes, by their device nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.nodes: set[str] = set()
        self.meanwhile: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint

    async def __call__(self, nodes: Collection[str]) -> bool:
        """Ask."""
        await self.meanwhile()
        return not self.nodes.isdisjoint(nodes)


async def forgetting(node: NodeOnDisk, nursery: trio.Nursery, busy: Busy) -> OrphanedClaims:
    """The loop of one instance, and its repair."""
    await nursery.start(keep_cdi_files, busy.ledger, node.cdi())
    forgotten = OrphanedClaims(busy.ledger, node.source, busy, driver_name=DRIVER)
    await nursery.start(forgotten.run)
    return forgotten


@pytest.fixture
async def busy(node: NodeOnDisk, nursery: trio.Nursery) -> Busy:
    """The loop over claims a and b of one instance, and what keeps it from forgetting them."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    ledger = node.ledger()
    await node.start(ledger=ledger).prepare([ref("a"), ref("b")])
    node.source.asked = 0
    busy = Busy(ledger)
    await forgetting(node, nursery, busy)
    return busy


async def test_a_claim_that_was_gone_twice_is_unprepared(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock
) -> None:
    """Half a minute after it was found to be gone: the kubelet's own unprepare comes first."""
    del busy, autojump_clock
    await trio.sleep(3 * LOOK)
    noting = note_looks(node)
    del noting["default", "a"]
    await noting.has_asked_for_a.wait()

    await trio.sleep(29)
    assert node.record_uids() == {"uid-a", "uid-b"}

    await trio.sleep(7)
    assert node.record_uids() == node.cdi_uids() == {"uid-b"}


class Noting(dict[tuple[str | None, str], ResourceClaim]):
    """Claims that note when they are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, list[float]] = {}
        self.has_asked_for_a = trio.Event()

    def __getitem__(self, key: tuple[str | None, str]) -> ResourceClaim:
        """Note the time."""
        if key[1] == "a":
            self.has_asked_for_a.set()
        self.times.setdefault(key[1], []).append(trio.current_time())
        return super().__getitem__(key)


def note_looks(node: NodeOnDisk) -> Noting:
    """Note from now on when each claim is looked for."""
    noting = Noting()
    noting.update(node.source.stored)
    node.source.stored = noting
    return noting


async def test_claims_are_looked_for_at_times_of_their_own_once_in_ten_minutes(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock
) -> None:
    """From the cache: 5000 nodes do not ask in step, nor hundreds of times a second."""
    del busy, autojump_clock
    random.seed(1)  # by chance a claim's pauses can all be of the same minute
    noting = note_looks(node)
    await trio.sleep(10 * LOOK + 60)

    assert 2 * 8 <= node.source.asked <= 2 * 11
    assert node.source.asked_cache == node.source.asked
    assert noting.times["a"] != noting.times["b"]
    for times in noting.times.values():
        pauses = [after - before for before, after in pairwise(times)]
        assert min(pauses) >= LOOK
        assert len({round(pause) for pause in pauses}) > 1


ORPHANED = {
    "replaced": claim("a", result("npu-2"), uid="new"),
    "deallocated": claim("a").model_copy(update={"status": ResourceClaimStatus()}),
    "allocated elsewhere": claim("a", result("npu-2", pool="node-2")),
    "allocated something else": claim("a", result("npu-4"), result("npu-2", driver="other")),
    "reserved for no pod": claim("a", result("npu-2"), users=()),
}


@pytest.mark.parametrize("how", ORPHANED)
async def test_an_orphaned_claim_is_taken_back(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock, how: str
) -> None:
    """It exists, and may do so for ever; the kubelet has forgotten it."""
    del busy, autojump_clock
    node.source.store(ORPHANED[how])
    await trio.sleep(LATEST)
    assert node.record_uids() == node.cdi_uids() == {"uid-b"}


async def test_a_claim_that_is_prepared_after_a_doubt_is_kept(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """After each prepare it is no suspected orphan, whatever was read before."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    ledger = node.ledger()
    claims = node.start(ledger=ledger)
    await claims.prepare([ref("a")])
    busy = Busy(ledger)
    await forgetting(node, nursery, busy)
    node.source.store(ORPHANED["reserved for no pod"])
    for _ in range(round(LATEST / 10)):
        await trio.sleep(10)
        if node.record("uid-a").get("doubted"):
            break

    async def reserved_meanwhile() -> None:
        node.source.store(claim("a", result("npu-2")))
        assert (await claims.prepare([ref("a")]))["uid-a"].error == ""
        busy.meanwhile = trio.lowlevel.checkpoint

    busy.meanwhile = reserved_meanwhile
    await trio.sleep(LATEST)
    assert busy.meanwhile is trio.lowlevel.checkpoint
    assert node.record("uid-a")["state"] == "ready"
    assert "doubted" not in node.record("uid-a")


async def test_a_claim_in_the_way_of_another_is_looked_for_at_once(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """And half a minute later again, whether the kubelet tries again or not."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    ledger = node.ledger()
    await node.start(ledger=ledger).prepare([ref("a")])
    forgotten = await forgetting(node, nursery, Busy(ledger))
    driver = node.start(ledger=ledger, patience=AT_ONCE, on_held=forgotten.hurry)
    node.source.store(ORPHANED["deallocated"])

    assert "held by claim default/a" in (await driver.prepare([ref("b")]))["uid-b"].error
    await trio.sleep(36)
    assert (await driver.prepare([ref("b")]))["uid-b"].error == ""


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_doubt_is_not_left_for_minutes(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock, *, restarts: bool
) -> None:
    """The daemon restarts before the second look, or the API server does not answer it."""
    del autojump_clock
    node.source.store(claim("a", result("npu-2")))
    ledger = node.ledger()
    await node.start(ledger=ledger).prepare([ref("a")])
    node.source.store(ORPHANED["deallocated"])
    async with trio.open_nursery() as daemon:
        (await forgetting(node, daemon if restarts else nursery, Busy(ledger))).hurry("uid-a")
        await trio.sleep(10)
        assert node.record("uid-a")["doubted"]
        daemon.cancel_scope.cancel()
    if restarts:
        await forgetting(node, nursery, Busy(node.ledger()))
    else:
        node.source.faults.append(Unavailable("503", status=503))
    await trio.sleep(120)  # the first round is a minute after a start
    assert node.record_uids() == set()


async def test_a_claim_that_comes_back_is_not_gone(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock
) -> None:
    """As after a restore of etcd, or of a cache that was behind: both looks must miss it."""
    del busy, autojump_clock
    noting = note_looks(node)
    gone = noting.pop(("default", "a"))
    await noting.has_asked_for_a.wait()
    node.source.store(gone)
    await trio.sleep(2 * LOOK)

    assert node.record_uids() == {"uid-a", "uid-b"}
    assert "doubted" not in node.record("uid-a")


def lack_in_cache(source: FakeClaims) -> None:
    """Read from an API server that is cut off from its peers."""
    source.not_cached = {"a", "b"}


def lose_etcd(source: FakeClaims) -> None:
    """Have no claims, by an API server that answers from its cache alone."""
    source.stored.clear()
    source.has_etcd = False


def break_down(source: FakeClaims) -> None:
    """Have no answer."""
    source.faults.extend([Unavailable("503", status=503)] * 1000)


def lose_uids(source: FakeClaims) -> None:
    """Have answers of something that is no API server."""
    for known in [*source.stored.values()]:
        source.store(known.with_metadata(known.metadata.model_copy(update={"uid": None})))


UNSURE = {
    "only the cache lacks them": lack_in_cache,
    "only the cache answers": lose_etcd,
    "an outage": break_down,
    "no UID": lose_uids,
}


@pytest.mark.parametrize("how", UNSURE)
async def test_without_a_sure_answer_no_claim_is_gone(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock, how: str
) -> None:
    """The claims are gone once all of the API server says so."""
    del busy, autojump_clock
    UNSURE[how](node.source)
    await trio.sleep(3 * LATEST)
    assert node.record_uids() == {"uid-a", "uid-b"}
    assert node.source.asked <= 2 * node.source.asked_cache

    node.source.stored.clear()
    node.source.faults.clear()
    node.source.has_etcd = True
    await trio.sleep(LATEST)
    assert node.record_uids() == set()


async def test_a_claim_with_processes_on_its_npus_is_left_alone(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock
) -> None:
    """Until they end."""
    del autojump_clock
    node.source.stored.clear()
    busy.nodes = {"/dev/davinci2"}
    await trio.sleep(2 * LATEST)
    assert node.record_uids() == {"uid-a"}

    busy.nodes = set()
    await trio.sleep(LATEST)
    assert node.record_uids() == set()


async def test_a_claim_that_is_being_undone_is_not_looked_for(
    node: NodeOnDisk, busy: Busy, autojump_clock: MockClock
) -> None:
    """Its end is decided, and no request can change it."""
    del autojump_clock
    async with busy.ledger.exclusive():
        known = busy.ledger.by_uid["uid-a"]
        busy.ledger.put(replace(known, state=EntryState.UNDOING, steps=("cannot be undone",)))
    noting = note_looks(node)
    await trio.sleep(2 * LATEST)
    assert noting.times.keys() == {"b"}


async def test_a_question_about_a_claim_that_is_never_answered_is_stuck(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The claim is named; between its rounds the search is not stuck."""
    del autojump_clock

    class Silent:
        async def get(self, *_: object, **__: object) -> ResourceClaim:
            return await trio.sleep_forever()

    async def is_busy(_: Collection[str]) -> bool:
        return False

    node.source.store(claim("a", result("npu-2")))
    ledger = node.ledger()
    claims = node.start(ledger=ledger)
    await claims.prepare([ref("a")])
    forgotten = OrphanedClaims(ledger, Silent(), is_busy, driver_name=DRIVER)
    await nursery.start(forgotten.run)
    await trio.sleep(59)
    assert watchdog.overdue() == ()
    await trio.sleep(LOOK + 180)
    (line,) = watchdog.overdue()
    assert line.startswith("looking whether claim default/a exists has taken")
