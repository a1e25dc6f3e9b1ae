"""Faults of a 950's ports, whose codes the Ascend driver does not list: they follow from others.

A port that is down is no trouble by its own code. How bad it is depends on how many ports are down,
or on the other chips, and has a code of its own. The rules are those of MindCluster (device plugin,
`fault_code.go`), as are the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from trio_npu_dra.npu.faults import packaged_table
from trio_npu_dra.npu.model import Board, Chip, Fault

UB_PORT_DOWN: Final = 0x81B18603
UB_OF_ONE_CHIP: Final = 0x020001002
UB_OF_ALL_CHIPS: Final = 0x020000002

UBOE_PORT_DOWN: Final = 0x81078607
UBOE_ONE_DOWN: Final = 0x110000002
UBOE_TWO_DOWN: Final = 0x110001024

SETTLE_SECONDS: Final = 5.0
"""How long a chip's UB port must be down until the chip is judged apart from the others: a switch
takes the ports of all chips down, one after the other. MindCluster looks as often."""


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


def with_ub_faults(board: Board, before: Board, now: float) -> Board:
    """The Board with what follows from UB ports that are down.

    If the ports of all chips are, it is not the chips' fault. That stands for each chip until its
    own ports are up again, because ports do not come back all at once.

    Args:
        board: Without these faults.
        before: The Board before it, with these faults.
        now: In seconds since 1970.
    """
    down = [chip for chip in board.chips if _down_since(chip) is not None]
    if not down:
        return board
    shared = {chip.name for chip in before.chips if _fault(chip, UB_OF_ALL_CHIPS)}
    if len(down) == len(board.chips):
        shared = {chip.name for chip in down}
    return replace(
        board, chips=tuple(_judged(chip, chip.name in shared, now) for chip in board.chips)
    )


def next_ub_change(board: Board) -> float | None:
    """When `with_ub_faults` says something else if nothing happens, in seconds since 1970."""
    times = [
        since + SETTLE_SECONDS
        for chip in board.chips
        if (since := _down_since(chip)) is not None
        and not _fault(chip, UB_OF_ONE_CHIP)
        and not _fault(chip, UB_OF_ALL_CHIPS)
    ]
    return min(times, default=None)


def _judged(chip: Chip, is_shared: bool, now: float) -> Chip:
    down = _fault(chip, UB_PORT_DOWN)
    if down is None:
        return chip
    if is_shared:
        return _with(chip, UB_OF_ALL_CHIPS, "UB ports of all NPUs are down", down)
    if now - down.since >= SETTLE_SECONDS:
        return _with(chip, UB_OF_ONE_CHIP, "a UB port is down, not of all NPUs", down)
    return chip


def _with(chip: Chip, code: int, text: str, down: Fault) -> Chip:
    """The chip with a fault that is as old as the one from which it follows."""
    level, rule = packaged_table().level(code, None)
    derived = replace(down, code=code, level=level, rule=rule, text=text)
    faults = sorted(
        (*chip.health.faults, derived), key=lambda fault: (-fault.level.rank, fault.code)
    )
    return replace(chip, health=replace(chip.health, faults=tuple(faults)))


def _fault(chip: Chip, code: int) -> Fault | None:
    return next((fault for fault in chip.health.faults if fault.code == code), None)


def _down_since(chip: Chip) -> float | None:
    down = _fault(chip, UB_PORT_DOWN)
    return None if down is None else down.since
