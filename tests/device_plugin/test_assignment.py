"""Each chip in one place, or in none while it moves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from dev.rig.boards import a3, die, partition, split
from tests.device_plugin.instance import RESOURCE, ids
from tests.holds.entries import chip, hold
from trio_npu_dra.agent.device_plugin.assignment import (
    elsewhere,
    resource_devices,
    unclear,
    waiting,
)
from trio_npu_dra.agent.device_plugin.device import ResourceDevice
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.hold import Hold, HolderKind
from trio_npu_dra.ascend.dcmi.types import VnpuMode
from trio_npu_dra.ascend.model import Board, ChipFamily
from trio_npu_dra.ascend.offers import NO_PARTITIONS, Offer, PartitionMode, Standing
from trio_npu_dra.ascend.partition import Partition

OTHER = "example.com/other"
EVERY = range(16)
BOARD = Board(chips=tuple(chip(number) for number in range(4)))
SPLIT = Board(
    chips=(split(chip(0), partition(100, "vir05_1c_8g"), partition(101, "vir10_3c_16g")), chip(1))
)
USED = Board(
    chips=tuple(
        replace(one, vdevices=tuple(replace(part, in_use=True) for part in one.vdevices))
        for one in SPLIT.chips
    )
)
ODDLY_SPLIT = Board(chips=(split(chip(0), partition(100, "odd")),))
RESPLIT = Board(chips=(split(chip(0), partition(101, "vir10_3c_16g")),))
GONE = Board(
    chips=(
        replace(chip(0), vnpus=(100,)),
        replace(chip(1), gone=True),
        replace(chip(2), gone=True),
        chip(3),
    )
)
MODULES = a3(*map(die, range(4)))
QUARTER_ID, HALF_ID = "Ascend910-5c.1cpu.8g-100-0", "Ascend910-10c.3cpu.16g-101-0"


def of_claim(number: int, *, kind: HolderKind = HolderKind.CLAIM, **facts: Any) -> Hold:
    """A hold on a chip: a claim's, unless given."""
    one = hold(f"{kind}-{number}", number, device=f"npu-{number}", **facts)
    return one._replace(holder=one.holder._replace(kind=kind))


def given(number: int, resource: str = RESOURCE, *, share: int | None = None) -> ResourceDevice:
    """A device that a pod has."""
    return ResourceDevice(resource=resource, chip=chip(number), share=share)


def quarter(template: str = "vir05_1c_8g") -> ResourceDevice:
    """A vNPU that a pod has."""
    part = Partition(template=template, vnpu=100)
    return replace(given(0, f"{RESOURCE}-5c.1cpu.8g"), partition=part)


def nodes(numbers: Collection[int]) -> frozenset[str]:
    """The device nodes of chips."""
    return frozenset(f"/dev/davinci{number}" for number in numbers)


def in_pool(
    holds: Collection[Hold],
    text: str,
    board: Board = BOARD,
    *,
    partitioning: PartitionMode = NO_PARTITIONS,
    leaving: Collection[int] = (),
) -> tuple[Offer, ...]:
    """The offers in the DRA pool."""
    others = elsewhere(board, Selection.parse(text), leaving=leaving)
    return pool_offers(board, holds, partitioning, elsewhere=others)


@dataclass(kw_only=True)
class Case:
    """A node, and what is where; None says nothing about the pool.

    Chips in *pods* are held beside *claims*; no process uses the chips *unused*.
    """

    text: str
    claims: Collection[Hold] = ()
    pods: Collection[ResourceDevice] = ()
    unused: Collection[int] = EVERY
    board: Board = BOARD
    shares: int = 1
    pool: list[str] | None = None
    served: list[str]

    @property
    def holds(self) -> list[Hold]:
        """Those of claims and pods."""
        return [*self.claims, *(hold for one in self.pods for hold in one.entry().holds)]


CASES = {
    "free chips are where they belong": Case(text="1-2", pool=["npu-0", "npu-3"], served=ids(1, 2)),
    "a claim keeps its chip in the pool, an observer does not": Case(
        text="all",
        claims=[of_claim(1), of_claim(2, observer=True)],
        pool=["npu-1"],
        served=ids(0, 2, 3),
    ),
    "a pod keeps its chip from the pool": Case(
        text="", pods=[given(1), given(2)], pool=["npu-0", "npu-3"], served=[]
    ),
    "a pod keeps its chip only in its own resource": Case(
        text="all", pods=[given(1), given(2, OTHER)], unused=[0], served=ids(0, 1)
    ),
    "a chip in unknown use waits in neither place": Case(
        text="all", unused=[0, 3], pool=[], served=ids(0, 3)
    ),
    "a split chip and one that is gone are not there, unless a pod has it": Case(
        text="all", pods=[given(2)], board=GONE, served=ids(2, 3)
    ),
    "a chip that claims share stays in the pool": Case(
        text="all",
        claims=[of_claim(1, share="share-0"), of_claim(1, share="share-1")],
        pool=["npu-1"],
        served=ids(0, 2, 3),
    ),
    "a chip whose pod's record is not understood is not given out": Case(
        text="0-1", claims=[of_claim(1, kind=HolderKind.POD)], served=ids(0)
    ),
    "a chip has shares": Case(text="1", shares=3, served=[f"Ascend910-1-{n}" for n in range(3)]),
    "all shares are there, whatever of them pods have": Case(
        text="1",
        shares=3,
        pods=[given(1, share=2)],
        unused=[],
        served=[f"Ascend910-1-{n}" for n in range(3)],
    ),
    "a chip in unknown use has no shares": Case(text="1", shares=3, unused=[], served=[]),
    "shares stay where chips are whole now": Case(
        text="1", pods=[given(1, share=0)], served=["Ascend910-1-0"]
    ),
    "a whole chip stays where chips are shared now": Case(
        text="1", shares=3, pods=[given(1)], served=ids(1)
    ),
    "shares beyond the number of now stay": Case(
        text="1",
        shares=2,
        pods=[given(1, share=0), given(1, share=2)],
        served=["Ascend910-1-0", "Ascend910-1-2"],
    ),
    "a share by another resource keeps its chip from this one": Case(
        text="1", shares=2, pods=[given(1, OTHER, share=0)], served=[]
    ),
    "vNPUs that were cut by hand have resources of their own": Case(
        text="all", board=SPLIT, served=[*ids(1), QUARTER_ID, HALF_ID]
    ),
    "a split chip has no shares": Case(
        text="0", board=SPLIT, shares=4, served=[QUARTER_ID, HALF_ID]
    ),
    "vNPUs in unknown use are not there": Case(text="0", board=SPLIT, unused=[], served=[]),
    "a vNPU that a container uses is there for the pod that has it alone": Case(
        text="0", pods=[quarter()], board=USED, unused=[], served=[QUARTER_ID]
    ),
    "vNPUs that containers use are not there": Case(text="0", board=USED, served=[]),
    "vNPUs for virtual machines are not there": Case(
        text="0", board=replace(SPLIT, vnpu_mode=VnpuMode.VIRTUAL_MACHINE), served=[]
    ),
    "vNPUs without a name are not there": Case(text="0", board=ODDLY_SPLIT, served=[]),
    "a vNPU that a claim has keeps the others too": Case(
        text="0",
        claims=[hold("c", 0, device="npu-0-vnpu-100", partition=Partition(template="a", vnpu=100))],
        board=SPLIT,
        pool=["npu-0-vnpu-100", "npu-1"],
        served=[],
    ),
    "a vNPU that a pod has stays beside the others": Case(
        text="0", pods=[quarter()], board=SPLIT, unused=[], served=[QUARTER_ID, HALF_ID]
    ),
    "a pod's vNPU keeps its chip from the pool": Case(
        text="", pods=[quarter()], board=SPLIT, pool=["npu-1"], served=[]
    ),
    "a vNPU that vanished keeps its chip": Case(text="0", pods=[quarter("")], served=[QUARTER_ID]),
    "a vNPU that vanished keeps its chip, though it is cut again": Case(
        text="0", pods=[quarter("")], board=RESPLIT, served=[QUARTER_ID, HALF_ID]
    ),
    "a module is whole or not in the pool": Case(
        text="0", board=MODULES, pool=["module-1"], served=ids(0)
    ),
    "dies of a module have no shares": Case(text="0", board=MODULES, shares=4, served=ids(0)),
    "a pod's die keeps its module from the pool": Case(
        text="0", claims=[of_claim(3, kind=HolderKind.POD)], board=MODULES, pool=[], served=ids(0)
    ),
    "an empty board": Case(text="all", board=Board(), pool=[], served=[]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_each_device_is_where_it_belongs(case: Case) -> None:
    """The operator decides, as far as holders and unknown processes let a chip move."""
    found = resource_devices(
        case.board,
        case.holds,
        Selection.parse(case.text, shares=case.shares),
        given=case.pods,
        unused=nodes(case.unused),
    )
    assert [one.id for devices in found.values() for one in devices] == case.served
    if case.pool is not None:
        assert [offer.name for offer in in_pool(case.holds, case.text, case.board)] == case.pool


def test_a_pods_device_is_as_healthy_as_its_chip_is_now() -> None:
    """The pod's record has the chip as it was when the pod got it."""
    (found,) = resource_devices(
        GONE, given(2).entry().holds, Selection.parse("2"), given=[given(2)], unused=frozenset()
    ).values()
    assert [(one.id, one.is_healthy) for one in found] == [("Ascend910-2", False)]


def test_a_record_whose_share_is_no_number_tells_no_device() -> None:
    """As a person may write it."""
    entry = given(1, share=0).entry()
    assert ResourceDevice.of_entry(entry) == given(1, share=0)
    (allocated,) = entry.allocation
    odd = replace(entry, allocation=(allocated._replace(share_id="x"),))
    assert ResourceDevice.of_entry(odd) is None


def test_a_resource_stays_until_its_last_pod_has_ended() -> None:
    """Without devices: the kubelet starts no container of a pod that names an unknown resource."""
    none = Selection.parse("")
    found = resource_devices(
        BOARD, given(1).entry().holds, none, given=[given(1)], unused=frozenset()
    )
    assert found == {RESOURCE: ()}
    assert resource_devices(BOARD, [], none, given=[], unused=frozenset()) == {}


def test_a_chip_in_unknown_use_is_unclear_unless_a_claim_has_it() -> None:
    """Whether it goes to a resource or leaves one; meanwhile it is not in the pool."""
    found = unclear(BOARD, [of_claim(1)], Selection.parse("0-2"), unused=nodes([0]))
    assert [chip.physical_id for chip in found] == [2]
    assert unclear(GONE, [], Selection.parse("1-2"), unused=frozenset()) == ()
    leaving, holds = [0, 1], [of_claim(1)]
    names = [offer.name for offer in in_pool(holds, "", leaving=leaving)]
    assert names == ["npu-1", "npu-2", "npu-3"]
    (waits,) = unclear(BOARD, holds, Selection(), unused=frozenset(), leaving=leaving)
    assert waits.physical_id == 0


CUTTABLE = Board(
    chips=(
        replace(
            die(3), family=ChipFamily.ASCEND_910B, board_id=0x41, ai_cores=20, memory_bytes=32 << 30
        ),
    )
)


def test_of_a_chip_that_is_to_move_only_the_held_partitions_stay() -> None:
    """No other is given out, nor the rest of the chip; then it moves."""
    partitioning = PartitionMode(is_on=True)
    part = Partition(template="vir05_1c_8g", number=0, vnpu=115)
    claimed = of_claim(3)._replace(device="npu-3-vir05-1c-8g-0", partition=part)

    def names(holds: Collection[Hold], text: str, leaving: Collection[int] = ()) -> list[str]:
        found = in_pool(holds, text, CUTTABLE, partitioning=partitioning, leaving=leaving)
        return [offer.name for offer in found]

    assert {"npu-3", claimed.device, "npu-3-vir05-1c-8g-1"} <= {*names([claimed], "")}
    assert names([claimed], "all") == [claimed.device]
    assert names([of_claim(3)], "all") == ["npu-3"]
    # A chip in a resource is not cut, nor one that a pod keeps, or that waits.
    pod = of_claim(3, kind=HolderKind.POD)
    assert names([], "all") == names([pod], "") == names([], "", leaving=[3]) == []


def test_no_new_claim_gets_a_chip_that_is_to_move() -> None:
    """However it is held: else it would go from claim to claim, and never move."""
    holds = [of_claim(1, share="share"), of_claim(2, share="share"), of_claim(3)]
    standings = {offer.name: offer.standing for offer in in_pool(holds, "2-3")}
    stay = dict.fromkeys(("npu-0", "npu-1"), Standing.OPEN)
    assert standings == stay | dict.fromkeys(("npu-2", "npu-3"), Standing.LEAVING)


def test_a_vnpu_that_vanished_is_not_healthy() -> None:
    """Its pod has it until it ends."""
    assert not quarter().is_healthy


def test_what_waits_is_told_with_the_reason() -> None:
    """Its holder, as long as the chip is somewhere else."""
    pods = [given(3, share=0), given(3, share=1)]
    holds = [of_claim(1), of_claim(2), *(hold for pod in pods for hold in pod.entry().holds)]

    def told(text: str, unclear: Collection[int] = ()) -> dict[str, str]:
        chips = [chip(number) for number in unclear]
        return {**waiting(BOARD, holds, Selection.parse(text), given=pods, unclear=chips)}

    assert told("0,3", [0]) == {
        "npu-0": f"to {RESOURCE}, but a process uses it that belongs to no known pod or claim"
    }
    by_pod = "but it is held by a pod of a device plugin"
    assert told("1") == {
        "npu-1": f"to {RESOURCE}, but it is held by claim default/{HolderKind.CLAIM}-1",
        "npu-3": f"to the DRA pool, {by_pod}",
    }
    assert told("3=a/b") == {"npu-3": f"to a/b, {by_pod}"}


@hypothesis.given(
    st.lists(st.sampled_from(["free", "claim", "pod", "both"]), min_size=4, max_size=4),
    st.sampled_from(["", "all", "0-1", "2=example.com/a,3"]),
    st.sets(st.integers(0, 3)),
)
def test_no_chip_is_in_two_places(states: list[str], text: str, unused: set[int]) -> None:
    """Whatever is held; a chip that a claim and a pod both have is for neither."""
    holds = [of_claim(number) for number, state in enumerate(states) if state in {"claim", "both"}]
    pods = [number for number, state in enumerate(states) if state in {"pod", "both"}]
    holds += [of_claim(number, kind=HolderKind.POD) for number in pods]
    pooled = {chip.physical_id for offer in in_pool(holds, text) for chip in offer.chips}
    found = resource_devices(
        BOARD,
        holds,
        Selection.parse(text),
        given=[given(number) for number in pods],
        unused=nodes(unused),
    )
    in_resources = [one.chip.physical_id for devices in found.values() for one in devices]
    assert len(in_resources) == len(set(in_resources))
    assert pooled.isdisjoint(in_resources)
