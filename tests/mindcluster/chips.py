"""Chips of each family, with what they tell."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_interface
from typing import Any

from dev.site.unhealthy_boards import fault, npu
from trio_npu_dra.agent.mindcluster.node_facts import node_labels
from trio_npu_dra.agent.report.node_labels import board_labels
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily, ChipHealth, ChipNetwork

__all__ = [
    "CHIPS",
    "NETWORK",
    "RESOURCE",
    "a3",
    "b4",
    "duo",
    "every_label",
    "fault",
    "of_950",
    "unhealthy",
]

RESOURCE = "huawei.com/Ascend910"
NETWORK = ChipNetwork(addresses=(ip_interface("192.168.100.4/24"),))


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


def duo(number: int, **facts: Any) -> Chip:
    """A chip of a 300I Duo, whose memory is DDR."""
    known: dict[str, Any] = {
        "family": ChipFamily.ASCEND_310P,
        "chip_name": "310P3",
        "ai_cores": 8,
        "product_name": "Atlas 300I Duo",
    }
    return b4(number, **known | facts)


def unhealthy(chip: Chip, **health: Any) -> Chip:
    """The same chip with another health."""
    return replace(chip, health=ChipHealth(**health))


CHIPS = (b4(board_id=0x28), duo(0), a3(0), of_950(0))
"""Chips that together have every label."""


def every_label(chip: Chip) -> dict[str, str]:
    """The labels of a node with that chip, for MindCluster and others."""
    board = Board(chips=(chip,), driver_version="24.1.rc2")
    return node_labels([chip]) | board_labels(board, "npu.huawei.com")
