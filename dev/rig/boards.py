"""Boards made by hand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trio_npu_dra.ascend.dcmi.types import ChipRef, MultiDiePolicy, Resources, VDevice
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily


def die(number: int, *, gone: bool = False, vnpus: Collection[int] = ()) -> Chip:
    """One of the two dies of an A3 card."""
    card, device = divmod(number, 2)
    return Chip(
        ref=ChipRef(card, device),
        physical_id=number,
        logic_id=number,
        card_id=card,
        device_id=device,
        family=ChipFamily.ASCEND_910_A3,
        chip_name="Ascend910",
        gone=gone,
        vnpus=tuple(vnpus),
    )


def partition(number: int, template: str = "vir06_1c_16g", *, told: bool = True) -> VDevice:
    """A vNPU; the Ascend driver reports some of its sizes, or none."""
    size = Resources(ai_cores=6, ai_cpus=1, memory_mib=16384)
    resources = size if told else Resources()
    return VDevice(id=number, template=template, in_use=False, resources=resources)


def split(chip: Chip, *partitions: VDevice) -> Chip:
    """The chip with vNPUs created manually."""
    return replace(chip, vnpus=tuple(each.id for each in partitions), vdevices=partitions)


def a3(*dies: Chip, policy: MultiDiePolicy | None = MultiDiePolicy.UNION) -> Board:
    """A Board with A3 dies."""
    return Board(chips=dies, multi_die_policy=policy)
