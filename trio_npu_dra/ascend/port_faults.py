"""Faults of a 950's ports that have codes of their own, which the Ascend driver does not list.

How bad a port that is down is depends on how many ports are down, or on the other chips. Rules and
levels are those of MindCluster (device plugin, `fault_code.go`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import Board, Chip, Fault, worst_first

UB_PORT_DOWN: Final = 0x81B18603
UB_OF_ONE_CHIP: Final = 0x020001002
UB_OF_ALL_CHIPS: Final = 0x020000002

_UB_TEXTS: Final = {
    UB_OF_ALL_CHIPS: "UB ports of all NPUs are down",
    UB_OF_ONE_CHIP: "a UB port is down, not of all NPUs",
}

UBOE_PORT_DOWN: Final = 0x81078607
UBOE_ONE_DOWN: Final = 0x110000002
UBOE_TWO_DOWN: Final = 0x110001024

SETTLE_SECONDS: Final = 5.0
"""How long a chip's UB port must be down until the chip is judged by itself: a switch takes the
ports of all chips down, one after the other. MindCluster looks as often."""

OTHERS_SECONDS: Final = 3.0
"""When all chips are read, so that two readings show all ports by then: events get lost."""


def uboe_faults(listed: Sequence[int]) -> dict[int, str]:
    """The codes that follow from a chip's list of codes, with words.

    The Ascend driver lists a code once for each port that has the fault; a chip has two UBoE ports.
    """
    match listed.count(UBOE_PORT_DOWN):
        case 0:
            return {}
        case 1:
            return {UBOE_ONE_DOWN: "a UBoE port is down"}
        case _:
            return {UBOE_TWO_DOWN: "no UBoE port is up"}


def with_ub_faults(board: Board, judged: Mapping[str, int | None], now: float) -> Board:
    """The Board with the faults that follow from UB ports that are down.

    If the ports of all chips are, it is not the chips' fault. That stands for each chip until its
    own ports are up again, because ports come back one by one. A chip that is gone does not
    count, and one that cannot be read keeps the others from being judged.

    Args:
        board: Without these faults.
        judged: The last `ub_code` of each chip, by name.
        now: In seconds since 1970.
    """
    down = _down(board)
    if not down:
        return board
    shared = {name for name, code in judged.items() if code == UB_OF_ALL_CHIPS}
    if all(chip.gone or chip.name in down for chip in board.chips):
        shared = set(down)
    apart = {name for name, code in judged.items() if code == UB_OF_ONE_CHIP}
    if _is_one_up(board):
        apart |= {name for name, fault in down.items() if now - fault.since >= SETTLE_SECONDS}
    codes = dict.fromkeys(apart, UB_OF_ONE_CHIP) | dict.fromkeys(shared, UB_OF_ALL_CHIPS)
    chips = (
        _with(chip, codes[chip.name], down[chip.name])
        if chip.name in down.keys() & codes.keys()
        else chip
        for chip in board.chips
    )
    return replace(board, chips=tuple(chips))


def ub_code(chip: Chip) -> int | None:
    """The code that follows from a chip's UB ports that are down, if one does."""
    codes = {fault.code for fault in chip.health.faults}
    return next((code for code in _UB_TEXTS if code in codes), None)


def next_ub_change(board: Board) -> float | None:
    """When `with_ub_faults` says something else if nothing happens, in seconds since 1970."""
    if not _is_one_up(board):
        return None
    times = [
        fault.since + SETTLE_SECONDS
        for name, fault in _down(board).items()
        if ub_code(board.by_name[name]) is None
    ]
    return min(times, default=None)


def is_fresh_down(board: Board, before: Board) -> bool:
    """Whether a chip has a UB port down that had none down before."""
    return bool(_down(board).keys() - _down(before).keys())


def _down(board: Board) -> dict[str, Fault]:
    """The fault of each chip whose UB ports are down, by the chip's name."""
    return {
        chip.name: fault
        for chip in board.chips
        for fault in chip.health.faults
        if fault.code == UB_PORT_DOWN
    }


def _is_one_up(board: Board) -> bool:
    """Whether a chip is known to have its UB ports up."""
    down = _down(board)
    return any(
        chip.is_listed and not chip.health.unmonitored and chip.name not in down
        for chip in board.chips
    )


def _with(chip: Chip, code: int, down: Fault) -> Chip:
    """The chip with a fault that is as old as the one from which it follows."""
    level, rule = packaged_table().level(code, None)
    derived = replace(down, code=code, level=level, rule=rule, text=_UB_TEXTS[code])
    faults = worst_first((*chip.health.faults, derived))
    return replace(chip, health=replace(chip.health, faults=faults))
