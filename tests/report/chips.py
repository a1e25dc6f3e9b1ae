"""Chips of each family, with what they tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dev.site.unhealthy_boards import npu
from trio_npu_dra.agent.report.node_labels import board_labels
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily


def b4(number: int = 0, **facts: Any) -> Chip:
    """A 910B4 of 32 GB."""
    known: dict[str, Any] = {"ai_cores": 20, "memory_bytes": 32 << 30, "board_id": 0x32}
    return replace(npu(number), **known | facts)


def a3(number: int, **facts: Any) -> Chip:
    """A die of an A3, in a super pod."""
    known: dict[str, Any] = {
        "family": ChipFamily.ASCEND_910_A3,
        "super_pod_id": 7,
        "super_pod_server_index": 3,
        "super_pod_sdid": 12582912 + number,
    }
    return b4(number, **known | facts)


def of_950(number: int, **facts: Any) -> Chip:
    """A 950, in a super pod."""
    return a3(
        number,
        **{"family": ChipFamily.ASCEND_950, "chip_name": "Ascend950PR", "rack_id": 2} | facts,
    )


CHIPS = (b4(), a3(0), of_950(0))
"""Chips that together have every label."""


def every_label(chip: Chip) -> dict[str, str]:
    """The labels of a node with that chip."""
    return board_labels(Board(chips=(chip,), driver_version="24.1.rc2"), "npu.huawei.com")
