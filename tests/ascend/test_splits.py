"""What chips can be split into, compared with what the simulated library makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy, VnpuMode
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.splits import split_of, usable, why_not_split
from trio_npu_dra.lab.simulator import create_board, load_profile

MIB = 1024 * 1024
CHIPS = {
    "300i-pro-2": (ChipFamily.ASCEND_310P, 0x64, 8, 21527, ChipRef(1, 0)),
    "300i-duo-2": (ChipFamily.ASCEND_310P, 0x97, 8, 44280, ChipRef(4, 0)),
    "910a-8": (ChipFamily.ASCEND_910, 0x2, 32, 32768, ChipRef(0, 0)),
    "910b2-8": (ChipFamily.ASCEND_910B, 0x43, 24, 65536, ChipRef(0, 0)),
    "910b3-8": (ChipFamily.ASCEND_910B, 0x42, 20, 65536, ChipRef(0, 0)),
    "910b4-8": (ChipFamily.ASCEND_910B, 0x41, 20, 32768, ChipRef(0, 0)),
    "a3-16": (ChipFamily.ASCEND_910_A3, 0xB0, 24, 65536, ChipRef(0, 0)),
}


def chip_of(profile: str) -> Chip:
    """The first chip of a board, with the facts that count here."""
    family, board_id, cores, memory_mib, ref = CHIPS[profile]
    return Chip(
        ref=ref,
        physical_id=0,
        logic_id=0,
        card_id=0,
        device_id=0,
        family=family,
        chip_name="",
        board_id=board_id,
        ai_cores=cores,
        memory_bytes=memory_mib * MIB,
    )


@pytest.mark.parametrize("profile", CHIPS)
def test_the_library_knows_the_templates_of_a_board(
    tmp_path: Path, simulator: Path, profile: str
) -> None:
    """Each can be made of a whole chip, and the library describes the partition alike."""
    board = create_board(load_profile(profile), tmp_path, prebuilt=simulator)
    split = split_of(chip_of(profile))
    assert split is not None
    dcmi, ref = Dcmi.load(board.root), CHIPS[profile][4]
    dcmi.init()
    if profile == "a3-16":
        with board.control() as control:
            control.set_multi_die_policy(independent=True)
    for template in split.templates:
        partition = dcmi.create_vdevice(ref, template.name)
        assert partition == split.vdev_ids[0]
        reported = dcmi.vdevice(ref, partition).resources
        if profile == "910a-8":
            assert reported.ai_cores == template.takes.ai_cores
        else:
            assert reported == template.takes
            assert dcmi.total_resources(ref) == split.whole
        dcmi.destroy_vdevice(ref, partition)


def test_partitions_are_no_larger_than_their_part_of_the_chip() -> None:
    """Eight of the smallest fit into a 310P with 24 GB, not all of it allocatable."""
    split = split_of(chip_of("300i-pro-2"))
    assert split is not None
    sizes = {each.name: each.takes.memory_mib for each in split.templates}
    assert (sizes["vir01"], sizes["vir02"], sizes["vir04"]) == (2690, 5381, 10763)
    assert split.vdev_ids == range(100, 108)


def test_a_container_can_use_less_than_a_partition_takes() -> None:
    """On 910B. What the driver reports counts, the rest is from the table."""
    chip = chip_of("910b4-8")
    split = split_of(chip)
    assert split is not None
    takes = split.templates[0].takes
    listed = usable(chip, "vir10_3c_16g", None)
    assert listed == replace(takes, memory_mib=14336)
    assert usable(chip, "vir10_3c_16g", takes) == listed
    reported = replace(takes, memory_mib=14000, ai_cpus=None, vpc=3)
    assert usable(chip, "vir10_3c_16g", reported) == replace(listed, memory_mib=14000, vpc=3)
    assert usable(chip, "vir99", reported) == reported
    assert usable(chip, "vir99", None).memory_mib is None


def test_ids_follow_the_physical_id() -> None:
    """Sixteen a chip, from a hundred on."""
    split = split_of(replace(chip_of("910b4-8"), physical_id=7))
    assert split is not None
    assert split.vdev_ids == range(212, 228)


def test_a_board_that_the_driver_does_not_name_is_cut_as_its_other_boards() -> None:
    """An Atlas 200L A2, whose board mind-cluster knows."""
    known = chip_of("910b4-8")
    assert split_of(replace(known, board_id=0x69)) == split_of(known)


def test_a_chip_of_an_unknown_kind_cannot_be_split() -> None:
    """Nor one whose board or memory is not known."""
    known = chip_of("910b4-8")
    assert split_of(replace(known, board_id=None)) is None
    assert split_of(replace(known, board_id=0xFF)) is None
    assert split_of(replace(known, memory_bytes=None)) is None
    assert split_of(replace(known, family=ChipFamily.ASCEND_950)) is None
    assert split_of(replace(chip_of("a3-16"), ai_cores=25)) is None


def test_each_reason_not_to_split_a_chip_has_its_words() -> None:
    """A family without templates, a Duo, A3 dies that go together, a node for machines."""
    chip, a3 = chip_of("910b4-8"), chip_of("a3-16")
    assert why_not_split(chip) == ""
    assert why_not_split(chip, mode=VnpuMode.CONTAINER) == ""
    assert why_not_split(a3, policy=MultiDiePolicy.INDEPENDENT) == ""
    duo = replace(chip_of("300i-duo-2"), product_name="Atlas 300I Duo")
    refused = {
        "cannot be split": why_not_split(replace(chip, family=ChipFamily.ASCEND_310)),
        "memory": why_not_split(replace(chip, memory_bytes=None)),
        "Duo": why_not_split(duo),
        "go together": why_not_split(a3, policy=MultiDiePolicy.UNION),
        "virtual machines": why_not_split(chip, mode=VnpuMode.VIRTUAL_MACHINE),
    }
    assert all(word in why for word, why in refused.items()), refused
