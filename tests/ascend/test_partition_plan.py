"""What chips could be cut into: counters, the partitions that could exist at once, and why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dev.rig.boards import a3, die
from tests.ascend.test_splits import CHIPS, chip_of
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy, VDevice, VnpuMode
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import Offer, OfferKind, PartitionMode, not_partitioned, offers
from trio_npu_dra.ascend.partition_plan import plan_partitions
from trio_npu_dra.ascend.splits import split_of
from trio_npu_dra.lab.simulator import create_board, load_profile

CUT = PartitionMode(is_on=True)
GIB = 1 << 30


def by_hand(vnpu: int, template: str, chip: Chip) -> VDevice:
    """A vNPU created manually."""
    split = split_of(chip)
    assert split is not None
    known = split.named(template) or split.templates[-1]
    return VDevice(id=vnpu, template=template, in_use=False, resources=known.takes)


def with_partitions(chip: Chip, *vdevices: VDevice) -> Chip:
    """The chip with vNPUs."""
    return replace(chip, vdevices=vdevices, vnpus=tuple(one.id for one in vdevices))


def partitions_of(made: tuple[Offer, ...]) -> Counter[str]:
    """How many partitions there are by each template that are cut on demand."""
    return Counter(
        offer.partition.template for offer in made if offer.partition and offer.partition.on_demand
    )


@pytest.mark.parametrize(
    ("profile", "has", "partitions"),
    [
        (
            "910b4-8",
            {"ai-cores": 20, "ai-cpus": 7, "vpc": 9, "vdec": 2, "jpegd": 24, "jpege": 4}
            | {"slots": 16, "memory": 32 * GIB},
            {"vir10_3c_16g": 2, "vir10_4c_16g_m": 1, "vir10_3c_16g_nm": 2, "vir05_1c_8g": 4},
        ),
        (
            "910b2-8",
            {"ai-cores": 24, "ai-cpus": 7, "vpc": 10, "vdec": 2, "jpegd": 28, "jpege": 4}
            | {"slots": 16, "memory": 64 * GIB},
            {"vir12_3c_32g": 2, "vir06_1c_16g": 4},
        ),
        (
            "a3-16",
            {"ai-cores": 24, "ai-cpus": 7, "vpc": 10, "vdec": 2, "jpegd": 28, "jpege": 4}
            | {"slots": 16, "memory": 64 * GIB},
            {"vir12_3c_32g": 2, "vir06_1c_16g": 4},
        ),
        (
            "910a-8",
            {"ai-cores": 32, "ai-cpus": 16, "vpc": 16, "vdec": 16, "jpegd": 16, "jpege": 8}
            | {"pngd": 48, "slots": 16, "memory": 32 * GIB},
            {"vir02": 16, "vir04": 8, "vir08": 4, "vir16": 2},
        ),
        (
            "300i-pro-2",
            {"ai-cores": 8, "ai-cpus": 7, "vpc": 12, "venc": 3, "vdec": 12, "jpegd": 16}
            | {"jpege": 8, "slots": 8, "memory": 21527 << 20},
            {"vir01": 7, "vir02": 3, "vir02_1c": 4, "vir04": 1, "vir04_3c": 2}
            | {"vir04_3c_ndvpp": 2, "vir04_4c_dvpp": 1},
        ),
    ],
)
def test_a_chip_is_offered_whole_and_in_as_many_partitions_as_could_exist_at_once(
    profile: str, has: dict[str, int], partitions: dict[str, int]
) -> None:
    """The whole takes all of the counters; no partition takes more than there is."""
    independent = MultiDiePolicy.INDEPENDENT
    made = offers(Board(chips=(chip_of(profile),), multi_die_policy=independent), CUT)
    whole, *others = made
    assert (whole.kind, whole.takes) == (OfferKind.NPU, has)
    assert {offer.kind for offer in others} == {OfferKind.VNPU}
    assert partitions_of(made) == partitions
    assert all(offer.of == has for offer in made)
    for offer in others:
        assert all(0 < amount <= has[counter] for counter, amount in offer.takes.items())


@pytest.mark.parametrize("profile", CHIPS)
def test_all_partitions_of_a_template_that_are_offered_can_be_cut(
    tmp_path: Path, simulator: Path, profile: str
) -> None:
    """Exactly as many as the library makes."""
    board = create_board(load_profile(profile), tmp_path, prebuilt=simulator)
    with board.control() as control:
        if profile == "a3-16":
            control.set_multi_die_policy(independent=True)
    dcmi, ref = Dcmi.load(board.root), CHIPS[profile][4]
    dcmi.init()
    found = plan_partitions(chip_of(profile))
    assert found is not None
    for template, count in Counter(partition.template for partition in found.partitions).items():
        made = [dcmi.create_vdevice(ref, template) for _ in range(count)]
        with pytest.raises(DcmiError):
            dcmi.create_vdevice(ref, template)
        for vnpu in made:
            dcmi.destroy_vdevice(ref, vnpu)


def test_a_910_with_30_cores_has_15_of_the_smallest_partitions() -> None:
    """Its cores are what is used up, not its AI CPUs."""
    found = plan_partitions(replace(chip_of("910a-8"), ai_cores=30))
    assert found is not None
    assert Counter(partition.template for partition in found.partitions)["vir02"] == 15


def test_the_names_of_partitions_are_labels() -> None:
    """Template with hyphens, then a number."""
    names = [offer.name for offer in offers(Board(chips=(chip_of("910b4-8"),)), CUT)]
    assert names[:2] == ["npu-0", "npu-0-vir10-3c-16g-0"]
    assert names[-1] == "npu-0-vir05-1c-8g-3"
    assert len(set(names)) == len(names)


def test_what_the_chip_reports_counts() -> None:
    """Except the AI CPUs: a 910B has more while it is cut."""
    chip = chip_of("910b4-8")
    split = split_of(chip)
    assert split is not None
    reported = replace(split.whole, vpc=4, ai_cpus=6, jpegd=None)
    (whole, *_) = offers(Board(chips=(replace(chip, shares_out=reported),)), CUT)
    assert (whole.of["vpc"], whole.of["ai-cpus"], whole.of["jpegd"]) == (4, 7, 24)


def test_a_partition_made_by_hand_takes_room() -> None:
    """It is offered as it is; the chip is not offered whole, and less of it can be cut."""
    chip = chip_of("910b4-8")
    used = with_partitions(chip, by_hand(100, "vir10_3c_16g", chip))
    made = offers(Board(chips=(used,)), CUT)
    assert made[0].name == "npu-0-vir10-3c-16g-0"
    assert made[-1].name == "npu-0-vnpu-100"
    assert not made[-1].takes
    assert (made[0].of["ai-cores"], made[0].of["slots"], made[0].of["memory"]) == (10, 15, 16 * GIB)
    assert partitions_of(made) == {
        "vir10_3c_16g": 1,
        "vir10_3c_16g_nm": 1,
        "vir05_1c_8g": 2,
    }


def test_a_partition_cut_for_a_claim_takes_none() -> None:
    """The scheduler counts it."""
    chip = chip_of("910b4-8")
    used = with_partitions(chip, by_hand(115, "vir10_3c_16g", chip))
    ours = replace(CUT, ours=frozenset({115}))
    assert [offer.of for offer in offers(Board(chips=(used,)), ours)] == [
        offer.of for offer in offers(Board(chips=(chip,)), CUT)
    ]


CHIP_910B4 = chip_of("910b4-8")


@pytest.mark.parametrize(
    ("board", "partitioning", "why"),
    [
        (Board(chips=(replace(CHIP_910B4, product_name="Atlas 300I Duo"),)), CUT, "Duo"),
        (Board(chips=(CHIP_910B4,), vnpu_mode=VnpuMode.VIRTUAL_MACHINE), CUT, "virtual machines"),
        (Board(chips=(replace(CHIP_910B4, board_id=0x77),)), CUT, "cannot be split"),
        (a3(die(0), policy=MultiDiePolicy.UNION), CUT, "cannot be split"),
        (
            Board(chips=(chip_of("a3-16"),), multi_die_policy=MultiDiePolicy.UNION),
            CUT,
            "dies of a card go together",
        ),
        (
            Board(chips=(CHIP_910B4,)),
            replace(CUT, refusals={CHIP_910B4.key: "dcmi_create_vdevice returned -8002"}),
            "returned -8002",
        ),
        (
            Board(
                chips=(
                    with_partitions(
                        CHIP_910B4,
                        by_hand(100, "vir10_3c_16g", CHIP_910B4),
                        by_hand(101, "vir10_3c_16g", CHIP_910B4),
                    ),
                )
            ),
            CUT,
            "were cut by hand leave no room: 100, 101",
        ),
    ],
)
def test_a_chip_that_cannot_be_cut_is_offered_as_ever(
    board: Board, partitioning: PartitionMode, why: str
) -> None:
    """And the reason is given."""
    (reason,) = not_partitioned(board, partitioning).values()
    assert why in reason
    assert not partitions_of(offers(board, partitioning))
    assert not any(offer.takes for offer in offers(board, partitioning))
    assert not_partitioned(board, replace(partitioning, is_on=False)) == {}
    assert not any(offer.takes or offer.of for offer in offers(board))
