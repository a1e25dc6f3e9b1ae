"""Faults of ports; of a 950 they have codes of their own, which the Ascend driver does not list.

The level of a port that is down depends on how many of the chip's ports are down, or on the ports
of other chips. Rules and levels are those of MindCluster (device plugin, `fault_code.go`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import Board, Chip, Fault, worst_first

ROCE_LINK_DOWN: Final = 0x81078603
UB_PORT_DOWN: Final = 0x81B18603
# MindCluster's own codes have nine digits, leading zeros included.
UB_DOWN_ON_ONE: Final = 0x020001002
UB_DOWN_ON_ALL: Final = 0x020000002

_UB_TEXTS: Final = {
    UB_DOWN_ON_ALL: "UB ports of all NPUs are down",
    UB_DOWN_ON_ONE: "a UB port of this NPU is down, but not those of all NPUs",
}

UBOE_PORT_DOWN: Final = 0x81078607
UBOE_ONE_DOWN: Final = 0x110000002
UBOE_TWO_DOWN: Final = 0x110001024

SETTLE_SECONDS: Final = 5.0
"""How long a chip's UB port must be down until the chip alone is at fault: a switch takes the ports
of all chips down, one after the other. MindCluster looks at the ports this often."""

READ_ALL_AFTER_SECONDS: Final = 3.0
"""How long after a port went down all chips are read, because another chip's event may be lost;
soon enough for the second reading before `SETTLE_SECONDS`."""


def uboe_faults(listed: Sequence[int]) -> dict[int, str]:
    """The codes that follow from a chip's list of codes, with messages.

    The Ascend driver lists a code once for each port that has the fault; a chip has two UBoE ports.
    """
    match listed.count(UBOE_PORT_DOWN):
        case 0:
            return {}
        case 1:
            return {UBOE_ONE_DOWN: "a UBoE port is down"}
        case _:
            return {UBOE_TWO_DOWN: "no UBoE port is up"}


def with_ub_faults(board: Board, last_codes: Mapping[str, int | None], now: float) -> Board:
    """The Board with the faults that follow from UB ports that are down.

    If the ports of all chips but those that are gone are down, the chips are not at fault. That
    stands for each chip until its own ports are up again, because ports come back one by one. While
    a chip cannot be read and no other has its ports up, no chip gets a new code.

    *last_codes* has the last `ub_code` of each chip, by name; *now* is in seconds since 1970.
    """
    down = _down(board)
    if not down:
        return board
    with_all = {name for name, code in last_codes.items() if code == UB_DOWN_ON_ALL}
    if all(chip.gone or chip.name in down for chip in board.chips):
        with_all = set(down)
    alone = {name for name, code in last_codes.items() if code == UB_DOWN_ON_ONE}
    if _is_one_up(board):
        alone |= {name for name, fault in down.items() if now - fault.since >= SETTLE_SECONDS}
    codes = dict.fromkeys(alone, UB_DOWN_ON_ONE) | dict.fromkeys(with_all, UB_DOWN_ON_ALL)
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
