"""Log lines for chips that come, go, are split or not handed out; Events report their health."""

from __future__ import annotations

import logging

from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import not_offered

log = logging.getLogger(__name__)


def log_changes(before: Board, after: Board) -> None:
    """Log once which chips are gone or back, are split, and are not offered or offered again."""
    for chip in after.chips:
        known = before.by_name.get(chip.name)
        was_gone = known is not None and known.gone
        if chip.gone and not was_gone:
            log.warning("NPU is gone", extra=_log_fields(chip))
        elif was_gone and not chip.gone:
            log.info("NPU is there again", extra=_log_fields(chip))
        if chip.vnpus != (known.vnpus if known is not None else ()):
            log.info("NPU is split", extra={"npu": chip.name, "vnpus": list(chip.vnpus)})
    hidden, was_hidden = not_offered(after), not_offered(before)
    for name, why in hidden.items():
        if was_hidden.get(name) != why:
            log.warning("NPU is not offered", extra={"npu": name, "why": why})
    for name in was_hidden.keys() - hidden.keys():
        log.info("NPU is offered again", extra={"npu": name})


def _log_fields(chip: Chip) -> dict[str, str]:
    return {"npu": chip.name, "chip": str(chip.ref)}
