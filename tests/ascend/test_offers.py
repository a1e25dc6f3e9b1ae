"""What the chips of a Board may be handed out as."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.rig.boards import a3, die, partition, split
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, VnpuMode
from trio_npu_dra.ascend.model import Board, ChipHealth, Fault, FaultLevel
from trio_npu_dra.ascend.offers import OfferKind, not_offered, offers
from trio_npu_dra.ascend.partition import Partition


def names(board: Board) -> list[str]:
    """The offers' names, in their order."""
    return [offer.name for offer in offers(board)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (MultiDiePolicy.UNION, ["module-0", "module-1"]),
        (MultiDiePolicy.INDEPENDENT, ["npu-0", "npu-1", "npu-2", "npu-3"]),
        (None, ["module-0", "module-1"]),
    ],
)
def test_the_policy_says_whether_dies_go_together(
    policy: MultiDiePolicy | None, expected: list[str]
) -> None:
    """Without a policy both dies go together: that works under either."""
    board = a3(*map(die, range(4)), policy=policy)
    assert names(board) == expected
    assert [chip for offer in offers(board) for chip in offer.chips] == list(board.chips)


def test_a_module_has_both_dies() -> None:
    """Its kind, its chips and their device nodes."""
    (module,) = offers(a3(die(6), die(7)))
    assert (module.name, module.kind) == ("module-3", OfferKind.MODULE)
    assert module.device_nodes == {"/dev/davinci6", "/dev/davinci7"}


def test_a_lone_die_is_handed_out_only_where_dies_are_independent() -> None:
    """Its sister never answered, or has another physical id now."""
    assert names(a3(die(0), die(1), die(2))) == ["module-0"]
    assert names(a3(die(2), policy=MultiDiePolicy.INDEPENDENT)) == ["npu-2"]


def test_a_chip_that_is_split_into_vnpus_is_not_handed_out_whole() -> None:
    """Nor is the module whose die it is."""
    split = (die(0), die(1, vnpus=[116]), die(2), die(3))
    assert names(a3(*split)) == ["module-1"]
    assert names(a3(*split, policy=MultiDiePolicy.INDEPENDENT)) == ["npu-0", "npu-2", "npu-3"]


def test_a_split_chip_is_handed_out_in_its_partitions() -> None:
    """By the ids of its vNPUs; each has its own key and the chip's nodes."""
    partitions = partition(101, "vir12_3c_32g"), partition(100)
    board = a3(split(die(0), *partitions), die(1), policy=MultiDiePolicy.INDEPENDENT)
    assert names(board) == ["npu-0-vnpu-101", "npu-0-vnpu-100", "npu-1"]
    one, other, whole = offers(board)
    assert (one.kind, one.partition) == (
        OfferKind.VNPU,
        Partition(template="vir12_3c_32g", vnpu=101),
    )
    assert one.device_nodes == other.device_nodes == {"/dev/davinci0"}
    assert one.key != other.key
    assert one.vdevice == partitions[0]
    assert not one.is_lost
    assert (whole.partition, whole.vdevice, whole.usable) == (None, None, None)
    assert not not_offered(board)


def test_partitions_that_no_container_can_have_are_not_handed_out() -> None:
    """Those for virtual machines, those that the Ascend driver does not describe, union dies."""
    board = a3(split(die(0), partition(100)), policy=MultiDiePolicy.INDEPENDENT)
    machines = replace(board, vnpu_mode=VnpuMode.VIRTUAL_MACHINE)
    assert names(machines) == []
    assert "for virtual machines" in not_offered(machines)["npu-0"]
    assert names(a3(die(1, vnpus=[116]), policy=MultiDiePolicy.INDEPENDENT)) == []
    assert names(a3(split(die(0), partition(100)), die(1))) == []


def test_a_partition_is_as_unhealthy_as_its_chip() -> None:
    """And has a fault of its own when it does not exist any more."""
    ill = ChipHealth(faults=(Fault(code=1, level=FaultLevel.SUB_HEALTH, rule="", since=1),))
    chip = replace(split(die(0), partition(100)), health=ill)
    (offer,) = offers(a3(chip, policy=MultiDiePolicy.INDEPENDENT))
    assert offer.health == ill
    lost = replace(offer, chips=(replace(chip, vnpus=(), vdevices=()),))
    assert lost.is_lost
    assert [fault.level for fault in lost.health.faults] == [
        FaultLevel.RESTART_NPU,
        FaultLevel.SUB_HEALTH,
    ]
    assert "does not exist any more" in lost.health.message
    made_for_a_claim = Partition(template="vir06_1c_16g", number=0, vnpu=100)
    assert not replace(lost, partition=made_for_a_claim).is_lost


def test_a_module_with_a_die_that_is_gone_is_as_gone() -> None:
    """The holds decide whether it is still published."""
    assert [offer.gone for offer in offers(a3(die(0), die(1, gone=True), die(2), die(3)))] == [
        True,
        False,
    ]


def test_a_gone_die_of_a_card_that_had_the_number_before_hides_no_module() -> None:
    """After cards were renumbered."""
    left = replace(die(8, gone=True), card_id=0)
    (module,) = offers(a3(die(0), die(1), left))
    assert [chip.name for chip in module.chips] == ["npu-0", "npu-1"]
