"""Boards made by hand."""

from __future__ import annotations

from collections.abc import Collection

from trio_npu_dra.npu.dcmi.types import ChipRef, MultiDiePolicy
from trio_npu_dra.npu.model import Board, Chip, ChipFamily


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


def a3(*dies: Chip, policy: MultiDiePolicy | None = MultiDiePolicy.UNION) -> Board:
    """A Board with A3 dies."""
    return Board(chips=dies, multi_die_policy=policy)
