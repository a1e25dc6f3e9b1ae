"""Each chip in one place, or in none while it moves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import hypothesis
import pytest
from hypothesis import strategies as st

from dev.rig.boards import a3, die, partition, split
from tests.holds.entries import chip, hold
from trio_npu_dra.agent.device_plugin.assignment import (
    elsewhere,
    partitions_of,
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

RESOURCE = "huawei.com/Ascend910"
BOARD = Board(chips=tuple(chip(number) for number in range(4)))


def of_pod(number: int) -> Hold:
    """A pod's hold on a chip."""
    one = hold(f"pod-of-npu-{number}", number, device=f"npu-{number}")
    return replace(one, holder=replace(one.holder, kind=HolderKind.POD))


def of_claim(number: int, *, observer: bool = False) -> Hold:
    """A claim's hold on a chip."""
    return hold(f"claim-{number}", number, device=f"npu-{number}", observer=observer)


def node(number: int) -> str:
    """A chip's device node."""
    return f"/dev/davinci{number}"


def pool(holds: Collection[Hold], text: str, board: Board = BOARD) -> list[str]:
    """The names in the DRA pool."""
    return [offer.name for offer in in_pool(holds, text, board)]


def in_pool(
    holds: Collection[Hold],
    text: str,
    board: Board = BOARD,
    *,
    partitioning: PartitionMode = NO_PARTITIONS,
    leaving: Collection[int] = (),
) -> tuple[Offer, ...]:
    """What is in the DRA pool."""
    others = elsewhere(board, Selection.parse(text), leaving=leaving)
    return pool_offers(board, holds, partitioning, elsewhere=others)


def given(number: int, resource: str = RESOURCE, *, share: int | None = None) -> ResourceDevice:
    """What a pod has."""
    return ResourceDevice(resource=resource, chip=chip(number), share=share)


def served(
    holds: Collection[Hold],
    text: str,
    *,
    given: Collection[ResourceDevice] = (),
    unused: Collection[int] = range(16),
    board: Board = BOARD,
    shares: int = 1,
) -> list[str]:
    """The ids of all devices of resources, with what pods have beside other holds."""
    found = resource_devices(
        board,
        [*holds, *(hold for one in given for hold in one.entry().holds)],
        Selection.parse(text, shares=shares),
        given=given,
        unused=frozenset(map(node, unused)),
    )
    return [one.id for devices in found.values() for one in devices]


def ids(*numbers: int) -> list[str]:
    """Those of whole chips."""
    return [f"Ascend910-{number}" for number in numbers]


def test_free_chips_are_where_they_belong() -> None:
    """The operator decides."""
    assert pool([], "1-2") == ["npu-0", "npu-3"]
    assert served([], "1-2") == ids(1, 2)


def test_a_claim_keeps_its_chip_in_the_pool() -> None:
    """Who only looks on keeps nothing."""
    holds = [of_claim(1), of_claim(2, observer=True)]
    assert pool(holds, "all") == ["npu-1"]
    assert served(holds, "all") == ids(0, 2, 3)


def test_a_pod_keeps_its_chip_from_the_pool() -> None:
    """It stays in the resource only if it is to be there."""
    holds = [of_pod(1), of_pod(2)]
    assert pool(holds, "") == ["npu-0", "npu-3"]
    pods = [given(1), given(2, "example.com/other")]
    assert served([], "all", given=pods, unused=[0]) == ids(0, 1)


def test_a_resource_stays_until_its_last_pod_has_ended() -> None:
    """Without devices: the kubelet starts no container of a pod that names an unknown resource."""
    none = Selection.parse("")
    found = resource_devices(BOARD, [of_pod(1)], none, given=[given(1)], unused=frozenset())
    assert found == {"huawei.com/Ascend910": ()}
    assert resource_devices(BOARD, [], none, given=[], unused=frozenset()) == {}


def test_a_chip_in_unknown_use_waits() -> None:
    """It is in neither place, and looked at again."""
    assert served([], "all", unused=[0, 3]) == ids(0, 3)
    assert pool([], "all") == []
    found = unclear(BOARD, [of_claim(1)], Selection.parse("0-2"), unused=frozenset({node(0)}))
    assert [chip.physical_id for chip in found] == [2]


def test_a_chip_that_leaves_a_resource_waits_too() -> None:
    """Unless a claim has it already."""
    leaving = [0, 1]
    holds = [of_claim(1)]
    selection = Selection.parse("")
    found = [offer.name for offer in in_pool(holds, "", leaving=leaving)]
    assert found == ["npu-1", "npu-2", "npu-3"]
    (waits,) = unclear(BOARD, holds, selection, unused=frozenset(), leaving=leaving)
    assert waits.physical_id == 0


def test_what_cannot_be_handed_out_is_not_there() -> None:
    """A chip that is split into vNPUs, and one that is gone, unless a pod has it."""
    chips = (
        replace(chip(0), vnpus=(100,)),
        replace(chip(1), gone=True),
        replace(chip(2), gone=True),
        chip(3),
    )
    board = Board(chips=chips)
    assert served([], "all", given=[given(2)], board=board) == ids(2, 3)


CUTTABLE = replace(
    die(3), family=ChipFamily.ASCEND_910B, board_id=0x41, ai_cores=20, memory_bytes=32 << 30
)
QUARTER = Partition(template="vir05_1c_8g", number=0, vnpu=115)


def test_of_a_chip_that_is_to_move_only_the_held_partitions_stay() -> None:
    """No other is given out, nor the rest of the chip; then it moves."""
    board, partitioning = Board(chips=(CUTTABLE,)), PartitionMode(is_on=True)
    claimed = replace(of_claim(3), device="npu-3-vir05-1c-8g-0", partition=QUARTER)

    def names(holds: Collection[Hold], text: str) -> list[str]:
        return [offer.name for offer in in_pool(holds, text, board, partitioning=partitioning)]

    assert {"npu-3", claimed.device, "npu-3-vir05-1c-8g-1"} <= {*names([claimed], "")}
    assert names([claimed], "all") == [claimed.device]
    assert served([claimed], "all", board=board) == []
    assert names([of_claim(3)], "all") == ["npu-3"]
    assert names([], "all") == []
    assert served([], "all", board=board) == ids(3)


def test_a_chip_in_a_resource_is_not_cut() -> None:
    """Nor is one that a pod keeps after the flag has changed, or that waits."""
    board, partitioning = Board(chips=(CUTTABLE,)), PartitionMode(is_on=True)
    for holds, text, leaving in ([], "3", []), ([of_pod(3)], "", []), ([], "", [3]):
        assert in_pool(holds, text, board, leaving=leaving, partitioning=partitioning) == ()


def test_a_chip_that_claims_share_stays_in_the_pool() -> None:
    """Until the last share is released."""
    shares = [replace(of_claim(1), share=f"share-{number}") for number in range(2)]
    assert pool(shares, "all") == ["npu-1"]
    assert served(shares, "all") == ids(0, 2, 3)
    assert served([], "all") == ids(0, 1, 2, 3)


def test_no_new_claim_gets_a_chip_that_is_to_move() -> None:
    """However it is held: else it would go from claim to claim, and never move."""
    shares = [replace(of_claim(number), share="share") for number in (1, 2)]
    found = in_pool([*shares, of_claim(3)], "2-3")
    standings = {offer.name: offer.standing for offer in found}
    assert standings == {
        "npu-0": Standing.OPEN,
        "npu-1": Standing.OPEN,
        "npu-2": Standing.LEAVING,
        "npu-3": Standing.LEAVING,
    }


def test_a_chip_has_shares() -> None:
    """All of them, whatever of it pods have; each id is one."""
    every = ["Ascend910-1-0", "Ascend910-1-1", "Ascend910-1-2"]
    assert served([], "1", shares=3) == every
    assert served([], "1", shares=3, given=[given(1, share=2)], unused=[]) == every
    assert served([], "1", shares=3, unused=[]) == []


@pytest.mark.parametrize(
    ("shares", "pods"),
    [(1, [given(1, share=0)]), (3, [given(1)]), (2, [given(1, share=0), given(1, share=2)])],
    ids=["shares that are whole now", "a whole chip that is shared now", "more shares than now"],
)
def test_what_pods_have_stays_as_it_is(shares: int, pods: list[ResourceDevice]) -> None:
    """Nothing else of the chip is given out after a change of flags until they have ended."""
    assert served([], "1", shares=shares, given=pods) == [one.id for one in pods]


def test_a_share_by_another_resource_keeps_its_chip_from_this_one() -> None:
    """As a whole chip does."""
    assert served([], "1", shares=2, given=[given(1, "example.com/other", share=0)]) == []


SPLIT = Board(
    chips=(split(chip(0), partition(100, "vir05_1c_8g"), partition(101, "vir10_3c_16g")), chip(1))
)
QUARTER_ID, HALF_ID = "Ascend910-5c.1cpu.8g-100-0", "Ascend910-10c.3cpu.16g-101-0"


def test_the_vnpus_of_a_chip_that_was_cut_by_hand_have_resources_of_their_own() -> None:
    """By template; the chip is not there, nor any share of it."""
    assert served([], "all", board=SPLIT) == [*ids(1), QUARTER_ID, HALF_ID]
    assert served([], "0", board=SPLIT, shares=4) == [QUARTER_ID, HALF_ID]
    assert served([], "0", board=SPLIT, unused=[]) == []


def test_what_nobody_can_have_is_in_no_resource() -> None:
    """What is for virtual machines or has no name, or was perhaps cut for a claim a moment ago."""
    unsettled = PartitionMode(by_hand=frozenset({101}))
    found = partitions_of(SPLIT, SPLIT.chips[0], RESOURCE, unsettled)
    assert [one.id for one in found] == [HALF_ID]
    machines = replace(SPLIT, vnpu_mode=VnpuMode.VIRTUAL_MACHINE)
    assert served([], "0", board=machines) == []
    assert served([], "0", board=Board(chips=(split(chip(0), partition(100, "odd")),))) == []


def test_a_vnpu_that_a_claim_has_keeps_the_others_too() -> None:
    """The chip moves as a whole; meanwhile the claim's partition stays in the pool."""
    holds = [hold("c", 0, device="npu-0-vnpu-100", partition=Partition(template="a", vnpu=100))]
    assert served(holds, "0", board=SPLIT) == []
    assert pool(holds, "0", SPLIT) == ["npu-0-vnpu-100", "npu-1"]


def test_a_vnpu_that_a_pod_has_stays_beside_the_others() -> None:
    """Unless the chip is for the pool now: then it is in neither until the pod has ended."""
    pod = replace(
        given(0, f"{RESOURCE}-5c.1cpu.8g"), partition=Partition(template="vir05_1c_8g", vnpu=100)
    )
    assert served([], "0", board=SPLIT, given=[pod], unused=[]) == [QUARTER_ID, HALF_ID]
    assert pool(pod.entry().holds, "", SPLIT) == ["npu-1"]


def test_a_vnpu_that_vanished_is_not_healthy_and_keeps_its_chip() -> None:
    """Whoever destroyed it may have cut others, or left the chip whole."""
    pod = replace(given(0, f"{RESOURCE}-5c.1cpu.8g"), partition=Partition(template="", vnpu=100))
    assert served([], "0", given=[pod]) == [QUARTER_ID]
    other = Board(chips=(split(chip(0), partition(101, "vir10_3c_16g")),))
    assert served([], "0", board=other, given=[pod]) == [QUARTER_ID, HALF_ID]
    assert not pod.is_healthy


def test_a_pod_whose_chip_is_not_known_keeps_it() -> None:
    """A newer version wrote its record."""
    assert served([of_pod(1)], "0-1") == ids(0)


def test_what_only_a_newer_version_knows_keeps_its_chip_in_the_pool() -> None:
    """As a claim does."""
    held = hold("x", 1, device="npu-1")
    held = replace(held, holder=replace(held.holder, kind=HolderKind.OTHER))
    assert served([held], "0-1") == ids(0)
    assert "npu-1" in pool([held], "0-1")


def test_a_module_is_whole_or_not_in_the_pool() -> None:
    """A resource has dies, as with Huawei's device plugin."""
    board = a3(*map(die, range(4)))
    assert pool([], "0", board) == ["module-1"]
    assert served([], "0", board=board) == ids(0)
    assert served([], "0", board=board, shares=4) == ids(0)
    assert pool([of_pod(3)], "0", board) == []


def test_what_waits_is_told_with_the_reason() -> None:
    """Who holds it, as long as it is somewhere else."""
    holds = [
        *(of_claim(1), of_claim(2)),
        *(hold for pod in (given(3, share=0), given(3, share=1)) for hold in pod.entry().holds),
    ]
    pods = [given(3, share=0), given(3, share=1)]

    def told(text: str, unclear: Collection[int] = ()) -> dict[str, str]:
        chips = [chip(number) for number in unclear]
        selection = Selection.parse(text)
        return {**waiting(BOARD, holds, selection, given=pods, unclear=chips)}

    assert told("0,3", [0]) == {
        "npu-0": f"to {RESOURCE}, but a process uses it that belongs to no known pod or claim"
    }
    by_pod = "but it is held by a pod of a device plugin"
    assert told("1") == {
        "npu-1": f"to {RESOURCE}, but it is held by claim default/claim-1",
        "npu-3": f"to the DRA pool, {by_pod}",
    }
    assert told("3=a/b") == {"npu-3": f"to a/b, {by_pod}"}


@hypothesis.given(
    st.lists(st.sampled_from(["free", "claim", "pod", "both"]), min_size=4, max_size=4),
    st.sampled_from(["", "all", "0-1", "2=example.com/a,3"]),
    st.sets(st.integers(0, 3)),
)
def test_no_chip_is_in_two_places(states: list[str], text: str, unused: set[int]) -> None:
    """Whatever is held; what a claim and a pod both have is for neither."""
    holds = [of_claim(number) for number, state in enumerate(states) if state in {"claim", "both"}]
    pods = [number for number, state in enumerate(states) if state in {"pod", "both"}]
    holds += map(of_pod, pods)
    pooled = {chip.physical_id for offer in in_pool(holds, text) for chip in offer.chips}
    found = resource_devices(
        BOARD,
        holds,
        Selection.parse(text),
        given=[given(number) for number in pods],
        unused=frozenset(map(node, unused)),
    )
    in_resources = [one.chip.physical_id for devices in found.values() for one in devices]
    assert len(in_resources) == len(set(in_resources))
    assert pooled.isdisjoint(in_resources)


@pytest.mark.parametrize("text", ["", "all"])
def test_an_empty_board_has_nothing(text: str) -> None:
    """Before the first look."""
    assert pool([], text, Board()) == []
    assert served([], text, board=Board()) == []
