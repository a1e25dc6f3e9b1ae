"""Boards and faults to say something about."""

from __future__ import annotations

from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily, ChipHealth, Fault, FaultLevel

BEGAN = 1_795_280_460.0
"""2026-11-21T17:01:00Z."""


def fault(
    code: int = 0x80E01801,
    level: FaultLevel = FaultLevel.RESTART_BUSINESS,
    *,
    rule: str = "fault table",
    text: str = "HBM ECC",
    since: float = BEGAN,
) -> Fault:
    """A fault."""
    return Fault(code=code, level=level, rule=rule, text=text, since=since)


def separated(*, since: float = BEGAN) -> Fault:
    """A fault that came too often."""
    level = FaultLevel.MANUALLY_SEPARATE_NPU
    return fault(level=level, rule="2 times in 24 h", since=since)


def npu(number: int = 3, *faults: Fault, unmonitored: str = "", network: str = "") -> Chip:
    """An NPU."""
    return Chip(
        ref=ChipRef(number, 0),
        physical_id=number,
        logic_id=number,
        card_id=number,
        device_id=0,
        family=ChipFamily.ASCEND_910B,
        chip_name="910B4",
        health=ChipHealth(faults=faults, unmonitored=unmonitored, network=network),
    )


def board(*npus: Chip) -> Board:
    """A Board."""
    return Board(chips=npus)
