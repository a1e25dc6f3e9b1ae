"""Faults of a 950's ports, whose codes the Ascend driver does not list: they follow from others.

A port that is down is no trouble by its own code. How bad it is depends on how many ports are down,
or on the other chips, and has a code of its own. The rules are those of MindCluster (device plugin,
`fault_code.go`), as are the levels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.faults import packaged_table
from trio_npu_dra.ascend.model import Board, Chip, Fault, worst_first

UB_PORT_DOWN: Final = 0x81B18603
UB_OF_ONE_CHIP: Final = 0x020001002
UB_OF_ALL_CHIPS: Final = 0x020000002

UBOE_PORT_DOWN: Final = 0x81078607
UBOE_ONE_DOWN: Final = 0x110000002
UBOE_TWO_DOWN: Final = 0x110001024

SETTLE_SECONDS: Final = 5.0
"""How long a chip's UB port must be down until the chip is judged apart from the others: a switch
takes the ports of all chips down, one after the other. MindCluster looks as often."""

OTHERS_SECONDS: Final = 3.0
"""When all are to be read, so that two readings say by then how the others are: events get lost."""


def uboe_faults(listed: Sequence[int]) -> dict[int, str]:
    """What follows from a chip's list of codes, with words.

    The Ascend driver lists a code once for each port that has the fault; a chip has two UBoE ports.
    """
    down = listed.count(UBOE_PORT_DOWN)
    if not down:
        return {}
    return (
        {UBOE_ONE_DOWN: "a UBoE port is down"}
        if down == 1
        else {UBOE_TWO_DOWN: "no UBoE port is up"}
    )


def with_ub_faults(board: Board, judged: Mapping[str, int | None], now: float) -> Board:
    """The Board with what follows from UB ports that are down.

    If the ports of all chips are, it is not the chips' fault. That stands for each chip until its
    own ports are up again, because ports do not come back all at once. A chip that is gone says
    nothing of that, and one that cannot be read keeps the others from being judged.

    Args:
        board: Without these faults.
        judged: What followed for each chip when it was judged last (`ub_code`), by name.
        now: In seconds since 1970.
    """
    down = [chip for chip in board.chips if _down_since(chip) is not None]
    if not down:
        return board
    shared = {name for name, code in judged.items() if code == UB_OF_ALL_CHIPS}
    if all(chip.gone or _down_since(chip) is not None for chip in board.chips):
        shared = {chip.name for chip in down}
    apart = {name for name, code in judged.items() if code == UB_OF_ONE_CHIP}
    if _is_one_up(board):
        apart |= {chip.name for chip in down if now - (_down_since(chip) or 0) >= SETTLE_SECONDS}
    return replace(board, chips=tuple(_judged(chip, shared, apart) for chip in board.chips))


def ub_code(chip: Chip) -> int | None:
    """What follows from a chip's UB ports that are down; None if nothing does."""
    codes = (UB_OF_ALL_CHIPS, UB_OF_ONE_CHIP)
    return next((code for code in codes if _fault(chip, code)), None)


def next_ub_change(board: Board) -> float | None:
    """When `with_ub_faults` says something else if nothing happens, in seconds since 1970."""
    if not _is_one_up(board):
        return None
    times = [
        since + SETTLE_SECONDS
        for chip in board.chips
        if (since := _down_since(chip)) is not None and ub_code(chip) is None
    ]
    return min(times, default=None)


def are_fresh(board: Board, before: Board) -> bool:
    """Whether a UB port of a chip is down whose ports were up before."""
    known = {chip.name for chip in before.chips if _down_since(chip) is not None}
    return any(_down_since(chip) is not None and chip.name not in known for chip in board.chips)


def _is_one_up(board: Board) -> bool:
    """Whether a chip is known to have its UB ports up."""
    return any(
        chip.is_listed and not chip.health.unmonitored and _down_since(chip) is None
        for chip in board.chips
    )


def _judged(chip: Chip, shared: Collection[str], apart: Collection[str]) -> Chip:
    down = _fault(chip, UB_PORT_DOWN)
    if down is None:
        return chip
    if chip.name in shared:
        return _with(chip, UB_OF_ALL_CHIPS, "UB ports of all NPUs are down", down)
    if chip.name in apart:
        return _with(chip, UB_OF_ONE_CHIP, "a UB port is down, not of all NPUs", down)
    return chip


def _with(chip: Chip, code: int, text: str, down: Fault) -> Chip:
    """The chip with a fault that is as old as the one from which it follows."""
    level, rule = packaged_table().level(code, None)
    derived = replace(down, code=code, level=level, rule=rule, text=text)
    faults = worst_first((*chip.health.faults, derived))
    return replace(chip, health=replace(chip.health, faults=faults))


def _fault(chip: Chip, code: int) -> Fault | None:
    return next((fault for fault in chip.health.faults if fault.code == code), None)


def _down_since(chip: Chip) -> float | None:
    down = _fault(chip, UB_PORT_DOWN)
    return None if down is None else down.since
