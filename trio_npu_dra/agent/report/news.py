"""Finds the changes between two Boards that are worth an Event; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trio_npu_dra.agent.holds.availability import available, names_of_chips
from trio_npu_dra.agent.holds.hold import Hold, SharedClaim
from trio_npu_dra.agent.report.device_health import joined
from trio_npu_dra.ascend.model import Board, Chip, ChipHealth, Fault, FaultLevel
from trio_npu_dra.ascend.offers import Standing
from trio_npu_dra.kit.api.objects import rfc3339

MESSAGE_LIMIT: Final = 1024
"""Characters of an Event's message that every API of Events takes."""


class Reason(StrEnum):
    """What happened, as the reason of an Event."""

    FAULT = "NpuFault"
    SEPARATED = "NpuSeparated"
    UNMONITORED = "NpuUnmonitored"
    RECOVERED = "NpuRecovered"
    POLICY_CHANGED = "NpuPolicyChanged"
    SEVERAL_PODS = "NpuForSeveralPods"
    RECORD_SET_ASIDE = "NpuRecordSetAside"

    @property
    def is_normal(self) -> bool:
        """Whether nothing is wrong; the type of all other Events is `Warning`."""
        return self in {Reason.RECOVERED, Reason.POLICY_CHANGED}


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something that happened to one chip, or to the node."""

    about: str  # the chip's name, or a property of the node; repetitions count by it
    # The host device nodes of the chip: claims that hold them get the Event too.
    nodes: frozenset[str] = frozenset()
    reason: Reason
    message: str  # one line that begins with the chip


def news(
    before: Board, after: Board, holds: Iterable[Hold] = (), *, since: float
) -> tuple[News, ...]:
    """What happened between two Boards.

    A fault is reported when its code appears or its level rises, and so is the fault of a chip that
    is gone. Levels below `SubHealthFault` are not: the vendor prescribes no action for them. RoCE
    port state is left out: many ports are unplugged on purpose. Faults of a chip that *before*
    lacks are not reported if they began before *since*, in seconds since 1970.
    """
    given = tuple(holds)
    devices = names_of_chips(available(after, given))
    of_chips = (
        item
        for chip in after.chips
        for item in _news_of(
            _Subject(chip, devices.get(chip.device_node, chip.name)),
            before.by_name.get(chip.name),
            since,
        )
    )
    return (*_policy_news(before, after, given), *of_chips)


def shared_news(claim: SharedClaim, board: Board, holds: Iterable[Hold]) -> News | None:
    """The Event for a claim that several pods have.

    Returns:
        None if several containers at once can open each of its NPUs. They cannot open a partition,
        whatever the share flag of its chip is.
    """
    open_to_all = {
        offer.name
        for offer in available(board, tuple(holds))
        if offer.partition is None and all(chip.device_share for chip in offer.chips)
    }
    devices = [device for device in claim.devices if device not in open_to_all]
    if not devices:
        return None
    others = f" and {len(devices) - 1} more" if devices[1:] else ""
    start = f"{devices[0]}{others}: reserved for several pods ("
    advice = (
        "), but the Ascend driver lets one container at a time open an NPU; in all others it is "
        "busy (-8020) until that one ends. Give each pod a claim of its own"
    )
    pods = joined(claim.pods, MESSAGE_LIMIT - len(start) - len(advice))
    return News(about=devices[0], reason=Reason.SEVERAL_PODS, message=f"{start}{pods}{advice}")


def record_news(set_aside: Mapping[str, str]) -> News:
    """The Event for records of holders that cannot be read; the reasons by the holders' UIDs."""
    advice = (
        ". Their NPUs are kept from other claims until their pods end; `npu-dra doctor` on the "
        "node says what to do"
    )
    start = "records on the node cannot be read and are set aside: "
    words = [f"of {uid}: {why}" for uid, why in set_aside.items()]
    message = joined(words, MESSAGE_LIMIT - len(start) - len(advice))
    return News(
        about="records", reason=Reason.RECORD_SET_ASIDE, message=f"{start}{message}{advice}"
    )


def _policy_news(before: Board, after: Board, holds: tuple[Hold, ...]) -> Iterator[News]:
    old, new = before.multi_die_policy, after.multi_die_policy
    if old is None or new is None or old is new:
        return
    words = [f"the multi-die policy was {old} and is {new} now"]
    words += [
        f"{offer.name} stays until it is released"
        for offer in available(after, holds)
        if offer.standing is Standing.LEAVING
    ]
    message = joined(words, MESSAGE_LIMIT)
    yield News(about="multi-die policy", reason=Reason.POLICY_CHANGED, message=message)


@dataclass(frozen=True, slots=True)
class _Subject:
    """The chip of a message, and the device as which it is handed out."""

    chip: Chip
    device: str

    def news(self, reason: Reason, words: list[str], advice: str = "") -> News:
        name = self.chip.name
        subject = name if self.device == name else f"{name} of {self.device}"
        room = MESSAGE_LIMIT - len(f"{subject}: {advice}")
        return News(
            about=name,
            nodes=frozenset({self.chip.device_node}),
            reason=reason,
            message=f"{subject}: {joined(words, room)}{advice}",
        )


def _news_of(subject: _Subject, known: Chip | None, since: float) -> Iterator[News]:
    now = subject.chip.health
    older = tuple(fault for fault in now.faults if fault.since < since)
    was = known.health if known is not None else ChipHealth(faults=older)
    levels = {fault.code: fault.level.rank for fault in was.faults}
    new = [fault for fault in _grave(now) if fault.level.rank > levels.get(fault.code, -1)]
    separated = [fault for fault in new if fault.level is FaultLevel.MANUALLY_SEPARATE_NPU]
    others = [fault for fault in new if fault not in separated]
    if separated:
        advice = f"; to return it to service, run `npu-dra health release {subject.chip.name}`"
        yield subject.news(Reason.SEPARATED, _fault_texts(separated), advice)
    if others:
        yield subject.news(Reason.FAULT, _fault_texts(others))
    if known is None:
        return
    if _is_unread(now) and not _is_unread(was):
        yield subject.news(Reason.UNMONITORED, [f"its health cannot be read: {now.unmonitored}"])
    if _is_in_trouble(was) and not _is_in_trouble(now):
        yield subject.news(Reason.RECOVERED, ["has recovered"])


def _grave(health: ChipHealth) -> tuple[Fault, ...]:
    least = FaultLevel.SUB_HEALTH.rank
    return tuple(fault for fault in health.faults if fault.level.rank >= least)


def _is_in_trouble(health: ChipHealth) -> bool:
    return bool(_grave(health)) or _is_unread(health)


def _is_unread(health: ChipHealth) -> bool:
    """Whether its health is not known for longer than a doubt, which ends in a second."""
    return bool(health.unmonitored) and not health.is_doubt


def _fault_texts(faults: list[Fault]) -> list[str]:
    return [f"{fault}, since {rfc3339(fault.since)}" for fault in faults]
