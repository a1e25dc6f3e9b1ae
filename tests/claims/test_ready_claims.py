"""A claim that is ready keeps what it has, whatever is found out or fails afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.claims.node import AT_ONCE, FakeClaims, NodeOnDisk, board, claim, npu, ref, result
from tests.claims.restarted import prepare, start
from tests.full_disk import no_file_beyond
from tests.synced import renames
from trio_npu_dra.agent.claims.patience import Patience
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, ChipFamily
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import Forbidden, KubeError


def record_path(node: NodeOnDisk, name: str) -> Path:
    """A claim's record."""
    return node.records_folder / f"uid-{name}.json"


def see_another_family(node: NodeOnDisk) -> None:
    """Have a newer version know the chips better."""
    chips = (replace(chip, family=ChipFamily.ASCEND_910) for chip in board().chips)
    node.board.set(Board(chips=tuple(chips)))


def see_modules(node: NodeOnDisk, *numbers: int) -> None:
    """Have two chips, 2 and 3 if none is named, be the dies of A3 card 1, which go together."""
    dies = (
        replace(npu(n), card_id=1, device_id=n % 2, family=ChipFamily.ASCEND_910_A3)
        for n in numbers or (2, 3)
    )
    node.board.set(Board(chips=tuple(dies), multi_die_policy=MultiDiePolicy.UNION))


# --- answered from the ledger --------------------------------------------------------------------

BLIND: dict[str, Callable[[NodeOnDisk], object]] = {
    "chips are not known": lambda node: node.board.set(EMPTY_BOARD),
    "its chip is off the bus": lambda node: node.board.set(Board(chips=board().chips[3:])),
    "its chip is of another family": see_another_family,
    "its chip goes by another name": see_modules,
}


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("change", BLIND.values(), ids=BLIND)
async def test_a_ready_claim_is_answered_whatever_the_board_is(
    two_claims: NodeOnDisk, change: Callable[[NodeOnDisk], object], is_restarted: bool
) -> None:
    """At once, and nothing of it is written again."""
    claims = two_claims.start(patience=AT_ONCE)
    first = await claims.prepare([ref("a")])
    inodes = [record_path(two_claims, "a").stat().st_ino, two_claims.cdi_path("uid-a").stat()]
    change(two_claims)

    if is_restarted:
        claims = two_claims.start(patience=AT_ONCE)
    assert await claims.prepare([ref("a")]) == first
    assert not first["uid-a"].error
    assert inodes == [
        record_path(two_claims, "a").stat().st_ino,
        two_claims.cdi_path("uid-a").stat(),
    ]


class SlowClaims(FakeClaims):
    """Reads of claim b wait."""

    def __init__(self, stored: FakeClaims) -> None:
        super().__init__(stored.stored)
        self.answers = trio.Event()

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim."""
        if name == "b":
            await self.answers.wait()
        return await super().get(kind, name, namespace, is_cached=is_cached)


async def test_a_claim_that_is_unprepared_while_a_prepare_of_it_waits_is_read_again(
    two_claims: NodeOnDisk,
) -> None:
    """That call took it for ready with the devices that it had, and it may have others by now."""
    reader = SlowClaims(two_claims.source)
    claims = two_claims.start(patience=AT_ONCE, reader=reader)
    answers = dict(await claims.prepare([ref("a")]))

    async def prepare_both() -> None:
        answers.update(await claims.prepare([ref("a"), ref("b")]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prepare_both)
        await wait_all_tasks_blocked()
        assert await claims.unprepare([ref("a")]) == {"uid-a": ""}
        two_claims.source.store(claim("a", result("npu-5")))
        reader.answers.set()
    assert answers["uid-a"].devices[0].device == "npu-5"
    assert two_claims.record("uid-a")["allocation"][0]["device"] == "npu-5"


async def test_a_claim_of_which_a_device_node_is_gone_is_not_answered(
    two_claims: NodeOnDisk,
) -> None:
    """Its containers could not start; it keeps its NPU."""
    (two_claims.root / "dev/davinci_manager").unlink()
    assert "davinci_manager is missing" in (await prepare(two_claims, "a"))["a"]
    (two_claims.root / "dev/davinci_manager").symlink_to("/dev/null")
    assert await prepare(two_claims, "a") == {"a": ""}
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]


async def test_a_claim_whose_record_has_an_impossible_path_is_planned_again(
    two_claims: NodeOnDisk,
) -> None:
    """As bad memory or another version may leave it: no file name has a NUL."""
    path = record_path(two_claims, "a")
    spoilt = path.read_text().replace('"hostPath":"/dev/davinci2"', '"hostPath":"/dev/\\u0000"')
    assert spoilt != path.read_text()
    path.write_text(spoilt)
    claims = two_claims.start(patience=AT_ONCE)
    await claims.prepare([ref("b")])

    assert (await claims.prepare([ref("a")]))["uid-a"].error == ""

    assert "u0000" not in path.read_text() + two_claims.cdi_path("uid-a").read_text()


async def test_a_claim_keeps_the_chips_that_it_has_when_their_name_is_another_ones(
    node: NodeOnDisk,
) -> None:
    """After cards were renumbered, at an instance that has not read the ledger yet."""
    node.source.store(claim("module", result("module-1")), claim("die", result("npu-4")))
    see_modules(node)
    behind = node.start(patience=AT_ONCE)
    await behind.prepare([ref("unknown")])
    assert await prepare(node, "module") == {"module": ""}
    held = node.record("uid-module")
    node.board.set(board())
    assert await prepare(node, "die") == {"die": ""}
    see_modules(node, 4, 5)

    assert (await behind.prepare([ref("module")]))["uid-module"].error == ""

    assert node.record("uid-module") == held
    assert "davinci2" in node.cdi_path("uid-module").read_text()


async def test_a_prepare_leaves_out_a_node_that_the_host_has_no_more(
    two_claims: NodeOnDisk,
) -> None:
    """A node that the Ascend driver has no more would keep the container from starting."""
    (two_claims.root / "dev/dvpp_cmdlist").unlink()

    assert await prepare(two_claims, "a") == {"a": ""}

    assert b"dvpp_cmdlist" not in two_claims.cdi_path("uid-a").read_bytes()
    assert b"dvpp_cmdlist" not in record_path(two_claims, "a").read_bytes()


async def test_a_lost_file_is_written_again_from_the_record(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """As it was, while nothing can be found out of the node."""
    del autojump_clock
    await start(two_claims, nursery)
    right = two_claims.cdi_path("uid-a").read_bytes()
    two_claims.cdi_path("uid-a").unlink()
    (two_claims.root / "dev/davinci_manager").unlink()
    await trio.sleep(6)
    assert two_claims.cdi_path("uid-a").read_bytes() == right


async def test_a_start_renders_files_again_and_the_record_says_so(
    two_claims: NodeOnDisk, nursery: trio.Nursery
) -> None:
    """By what the host has now."""
    (two_claims.root / "dev/dvpp_cmdlist").unlink()

    await start(two_claims, nursery)

    assert b"dvpp_cmdlist" not in two_claims.cdi_path("uid-a").read_bytes()
    assert "dvpp_cmdlist" not in json.dumps(two_claims.record("uid-a")["edits"])


# --- what a claim had is never given away --------------------------------------------------------


@pytest.mark.parametrize("size", [0, 100, 700])
async def test_a_claim_that_is_prepared_again_on_a_full_disk_keeps_its_npu(
    two_claims: NodeOnDisk, size: int
) -> None:
    """Whatever this version computes otherwise, and also where a node is gone."""
    see_another_family(two_claims)
    (two_claims.root / "dev/dvpp_cmdlist").unlink()
    with no_file_beyond(size):
        await prepare(two_claims, "a")

    assert two_claims.record_uids() >= {"uid-a"}
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]


async def test_a_reallocated_claim_has_a_record_at_every_moment(
    two_claims: NodeOnDisk,
) -> None:
    """On a full disk it keeps its old NPU until there is room for the new record."""
    two_claims.source.store(claim("a", result("npu-5")))
    with no_file_beyond(100):
        assert "File too large" in (await prepare(two_claims, "a"))["a"]
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]

    assert await prepare(two_claims, "a", "c") == {"a": "", "c": ""}
    assert two_claims.record("uid-a")["allocation"][0]["device"] == "npu-5"


async def test_a_claim_that_is_allocated_its_own_chips_in_another_form_keeps_its_file(
    two_claims: NodeOnDisk,
) -> None:
    """A pod may run with them: its file stays, and the record is never undoing."""
    path = record_path(two_claims, "a")
    wire = two_claims.record("uid-a")
    wire["allocation"][0]["requests"] = ["an-earlier-name"]
    path.write_text(json.dumps(wire))
    inode = two_claims.cdi_path("uid-a").stat().st_ino
    with renames(two_claims.records_folder) as states:
        assert await prepare(two_claims, "a") == {"a": ""}

    assert two_claims.cdi_path("uid-a").stat().st_ino == inode
    assert len(states) == 1
    assert two_claims.record("uid-a")["allocation"][0]["requests"] == ["npu"]


async def test_claims_that_change_places_have_no_device_twice_at_any_moment(
    two_claims: NodeOnDisk,
) -> None:
    """A claim is marked undoing before another one takes its device."""
    two_claims.source.store(claim("a", result("npu-3")), claim("b", result("npu-2")))
    with renames(two_claims.records_folder) as states:
        assert await prepare(two_claims, "a", "b") == {"a": "", "b": ""}
    assert len(states) == 6  # two marks, two records, two CDI files
    for state in states:
        records = [json.loads(content) for name, content in state.items() if name[0] != "."]
        held = [
            record["allocation"][0]["device"] for record in records if record["state"] != "undoing"
        ]
        assert len(records) == 2
        assert len(set(held)) == len(held)


# --- exclusion -----------------------------------------------------------------------------------


async def test_what_a_claim_moves_to_is_not_free_for_the_next_of_its_call(
    node: NodeOnDisk,
) -> None:
    """It has let go of what it had, and not of what it has now."""
    node.source.store(claim("a", result("npu-2")))
    claims = node.start()
    await claims.prepare([ref("a")])
    node.source.store(claim("a", result("npu-3")), claim("b", result("npu-3")))

    answers = await claims.prepare([ref("a"), ref("b")])

    assert answers["uid-a"].error == ""
    assert "npu-3 is held by claim default/a" in answers["uid-b"].error
    assert node.record_uids() == node.cdi_uids() == {"uid-a"}


@pytest.mark.parametrize("names", ["abcdefgh", "hgfedcba"])
async def test_of_two_claims_of_one_call_the_first_gets_the_device(
    node: NodeOnDisk, names: str
) -> None:
    """Not whichever a hash puts first."""
    node.source.store(*(claim(name, result("npu-2")) for name in names))

    errors = await prepare(node, *names)

    assert [name for name, error in errors.items() if not error] == [names[0]]


async def test_a_module_and_its_dies_exclude_each_other(node: NodeOnDisk) -> None:
    """A change of the policy while a claim holds a die; the other order is in the model."""
    node.source.store(claim("module", result("module-1")), claim("die", result("npu-3")))
    assert await prepare(node, "die") == {"die": ""}
    see_modules(node)

    refused = (await prepare(node, "module"))["module"]
    assert refused == (
        "device module-1 is held by claim default/die (UID uid-die), which has npu-3, until its "
        "pods have ended"
    )


async def test_own_and_admin_access_of_one_claim_are_answered_apart_and_hold(
    node: NodeOnDisk,
) -> None:
    """The device is in the CDI file once, and in no other claim's."""
    node.source.store(
        claim("a", result("npu-2", "look", admin_access=True), result("npu-2", "use")),
        claim("b", result("npu-2")),
    )

    answer = (await node.start(patience=AT_ONCE).prepare([ref("a")]))["uid-a"]

    assert [device.requests for device in answer.devices] == [("look",), ("use",)]
    assert len(json.loads(node.cdi_path("uid-a").read_bytes())["devices"]) == 1
    assert "held by claim default/a" in (await prepare(node, "b"))["b"]


# --- RBAC that fills -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "seconds"), [(Forbidden("403", status=403), 10), (KubeError("307", status=307), 0)]
)
async def test_a_refusal_that_stays_is_said_soon(
    node: NodeOnDisk, error: KubeError, seconds: float, autojump_clock: MockClock
) -> None:
    """People have to do something about it."""
    del autojump_clock
    node.source.faults.extend([error] * 1000)
    since = trio.current_time()

    assert (await node.start(patience=Patience()).prepare([ref("a")]))["uid-a"].error == str(error)
    assert trio.current_time() - since <= seconds
