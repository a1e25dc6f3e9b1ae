"""Log lines for what happens to chips themselves; how they are is said elsewhere."""

from __future__ import annotations

import logging

from trio_npu_dra.npu.model import Board, Chip

log = logging.getLogger(__name__)


def log_changes(before: Board, after: Board) -> None:
    """Say once which chips are gone, are back, or were split up by others."""
    for chip in after.chips:
        known = before.by_name.get(chip.name)
        _log_presence(chip, known)
        _log_split(chip, known)


def _log_presence(chip: Chip, known: Chip | None) -> None:
    was_gone = known is not None and known.gone
    if chip.gone and not was_gone:
        log.warning("NPU is gone", extra={"npu": chip.name, "chip": str(chip.ref)})
    elif was_gone and not chip.gone:
        log.info("NPU is there again", extra={"npu": chip.name, "chip": str(chip.ref)})


def _log_split(chip: Chip, known: Chip | None) -> None:
    vnpus = known.vnpus if known is not None else ()
    if chip.vnpus and chip.vnpus != vnpus:
        log.warning(
            "NPU is split into vNPUs by others, and is not offered whole",
            extra={"npu": chip.name, "vnpus": list(chip.vnpus)},
        )
    elif vnpus and not chip.vnpus:
        log.info("NPU is split no longer, and is offered again", extra={"npu": chip.name})
