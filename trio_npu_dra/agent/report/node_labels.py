"""Labels of the Node by which pods are placed: which NPUs it has, and in which super pod; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS

T = TypeVar("T")

SUPER_POD: Final = "huawei.com/topotree.superpodid"
RACK: Final = "huawei.com/topotree.rackid"
SERVER: Final = "huawei.com/topotree.serverid"

TOPOLOGY_KEYS: Final = frozenset({SUPER_POD, RACK, SERVER})
"""MindCluster's labels of the place in a super pod, which Huawei's device plugin writes too."""

_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def board_labels(board: Board, domain: str) -> dict[str, str]:
    """The labels of a node with these chips, those of the driver's own in *domain*.

    A fact that chips disagree on, or that no value of a label can say, has no label. Nothing is
    left to say of a node whose chips are all gone.
    """
    chips = [chip for chip in board.chips if not chip.gone]
    if not chips:
        return {}
    own = {
        "model": _common(chip.family for chip in chips),
        "chip": _common(chip.chip_name for chip in chips),
        "count": len(chips),
        "driver-version": board.driver_version,
    }
    return topology_labels(chips) | as_labels(
        {f"{domain}/{name}": value for name, value in own.items()}
    )


def topology_labels(chips: Sequence[Chip]) -> dict[str, str]:
    """The place of these chips in a super pod; of a 950 with its rack and the server's index."""
    with_server = (chip for chip in chips if TRAITS[chip.family].has_server_label)
    return as_labels(
        {
            SUPER_POD: _common(chip.super_pod_id for chip in chips),
            RACK: _common(chip.rack_id for chip in chips),
            SERVER: _common(chip.super_pod_server_index for chip in with_server),
        }
    )


def as_labels(facts: Mapping[str, str | int | None]) -> dict[str, str]:
    """The facts that are known and that a label can say (63 characters, no spaces)."""
    texts = {key: str(value) for key, value in facts.items() if value is not None}
    return {key: text for key, text in texts.items() if _VALUE.fullmatch(text)}


def _common(values: Iterable[T | None]) -> T | None:
    """The value that all chips have which tell one; None if they differ."""
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else None
