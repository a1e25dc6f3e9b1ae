"""What is worth saying when one Board follows another; pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trio_npu_dra.kube.objects import rfc3339
from trio_npu_dra.npu.model import Board, Chip, ChipHealth, Fault, FaultLevel
from trio_npu_dra.report.words import joined

MESSAGE_LIMIT: Final = 1024
"""Characters of an Event's message that every API of Events takes."""


class Reason(StrEnum):
    """What happened to an NPU, as the reason of an Event."""

    FAULT = "NpuFault"
    SEPARATED = "NpuSeparated"
    UNMONITORED = "NpuUnmonitored"
    RECOVERED = "NpuRecovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something to say of one NPU.

    Attributes:
        device: Its DRA device name.
        reason: What happened.
        message: One line for people; begins with the device.
    """

    device: str
    reason: Reason
    message: str


def news(before: Board, after: Board, *, since: float) -> tuple[News, ...]:
    """What happened between two Boards.

    A fault is news when its code comes or its level rises. Levels below `SubHealthFault` are not:
    the vendor has nothing done about them. Of RoCE ports nothing is said, because many are not
    plugged in, on purpose.

    Args:
        before: The Board until now.
        after: The Board from now on.
        since: Of an NPU that *before* does not have, faults that began earlier are old news, in
            seconds since 1970.
    """
    return tuple(
        one for npu in after.chips for one in _news_of(npu, before.by_name.get(npu.name), since)
    )


def _news_of(npu: Chip, known: Chip | None, since: float) -> Iterator[News]:
    now = npu.health
    was = known.health if known is not None else ChipHealth(faults=_older(now, since))
    levels = {fault.code: fault.level.rank for fault in was.faults}
    new = [fault for fault in _grave(now) if fault.level.rank > levels.get(fault.code, -1)]
    separated = [fault for fault in new if fault.level is FaultLevel.MANUALLY_SEPARATE_NPU]
    others = [fault for fault in new if fault not in separated]
    if separated:
        advice = f"; `npu-dra health release {npu.name}` takes it back"
        yield _said(npu, Reason.SEPARATED, _words(separated), advice)
    if others:
        yield _said(npu, Reason.FAULT, _words(others))
    if known is None:
        return
    if now.unmonitored and not was.unmonitored:
        yield _said(npu, Reason.UNMONITORED, [f"cannot be asked how it is: {now.unmonitored}"])
    if _is_in_trouble(was) and not _is_in_trouble(now):
        yield _said(npu, Reason.RECOVERED, ["is well again"])


def _older(health: ChipHealth, since: float) -> tuple[Fault, ...]:
    return tuple(fault for fault in health.faults if fault.since < since)


def _grave(health: ChipHealth) -> tuple[Fault, ...]:
    least = FaultLevel.SUB_HEALTH.rank
    return tuple(fault for fault in health.faults if fault.level.rank >= least)


def _is_in_trouble(health: ChipHealth) -> bool:
    return bool(_grave(health) or health.unmonitored)


def _words(faults: list[Fault]) -> list[str]:
    return [f"{fault}, since {rfc3339(fault.since)}" for fault in faults]


def _said(npu: Chip, reason: Reason, words: list[str], advice: str = "") -> News:
    room = MESSAGE_LIMIT - len(f"{npu.name}: {advice}")
    return News(
        device=npu.name, reason=reason, message=f"{npu.name}: {joined(words, room)}{advice}"
    )
