"""One chip's faults over time, and since when it has each.

Pure and driven by the caller's clock, in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.code_memory import PATIENCE, CodeMemory, is_stale
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent, Severity
from trio_npu_dra.ascend.faults import ALARM_WITHOUT_CODE, CARD_DROPPED, FaultTable
from trio_npu_dra.ascend.health_sample import Agreement, HealthSample
from trio_npu_dra.ascend.model import ChipHealth, Fault, FaultLevel, worst_first

RECOVERY_LAG: Final = 1.0
"""Seconds by which a recovery or the health value mostly precedes the change of the code list."""

_OCCURRENCE_LAG: Final = 0.125
"""Seconds from an occurrence to the first reading that looks for it; faults are urgent."""

BOOT_SECONDS: Final = 150.0
"""How long a chip may take to boot; MindCluster gives one that was reset as long."""

SILENT_SECONDS: Final = 20.0
"""How long an answer may be due of a chip before the chip counts as unknown."""

UNREAD_SECONDS: Final = 0.25
"""How long an event may wait for a reading; then it counts without one."""

_EVENT_MAX_AGE: Final = 300.0
"""Seconds by which an event may be late; one that seems older was dated by another clock."""


class ChipFaults:
    """The faults of one chip.

    Args:
        table: Levels and rules.
        memory: What an earlier process remembered, by code.
        settle_seconds: How long a fault must last before it may evict pods.

    Attributes:
        network: The known problem of the chip's RoCE port; empty if there is none.
    """

    def __init__(
        self,
        table: FaultTable,
        memory: Mapping[int, CodeMemory] | None = None,
        *,
        settle_seconds: float = 0.0,
    ) -> None:
        self.network = ""
        self._settle_seconds = settle_seconds
        self._settles_at: float | None = None
        self._table = table
        self._memory = dict(memory or {})
        self._agreement = Agreement()
        self._unread_events: list[tuple[FaultEvent, float]] = []
        self._recovering: dict[int, float] = {}  # codes still listed, by when the recovery came
        # codes of events that are not listed yet, by when the fault began and the event came
        self._ahead: dict[int, tuple[float, float]] = {}
        self._over: dict[int, float] = {}  # when the list lacked a code again
        self._read_at = 0.0
        self._unexplained: float | None = None  # since when no code explains the alarm
        self._booting_since: float | None = None
        self._failing_since: float | None = None  # since when readings bring errors alone
        self._due_since: float | None = None  # since when a reading is due that has not come
        self._is_silent = False  # until an answer, also if the clock is set back
        self._reading = HealthSample(unmonitored="not read yet")
        self._was_read = False

    @property
    def memory(self) -> Mapping[int, CodeMemory]:
        """The memory of each code."""
        return self._memory

    # --- what happens ----------------------------------------------------------------------------

    def note(self, event: FaultEvent, now: float) -> None:
        """Keep an event until the next reading, even one without an answer: then it counts."""
        self._unread_events.append((event, now))

    def _replay(self, event: FaultEvent, now: float) -> None:
        """Note what a reading does not show: how often a code came, how severe it is."""
        code = event.code
        is_likely = 0 <= now - event.raised_at < _EVENT_MAX_AGE
        raised_at = event.raised_at if is_likely else now
        if event.assertion is Assertion.NOTICE:
            self._count(code, raised_at)
        elif event.assertion is Assertion.RECOVERY:
            self._ahead.pop(code, None)
            if self._is_active(code):
                self._recovering[code] = now
        elif event.assertion is Assertion.OCCURRENCE:
            if code in self._recovering:  # gone and back between two readings
                self._end(code, self._recovering[code])
            is_late = raised_at <= self._over.get(code, 0.0)  # the list has shown it, and its end
            if not is_late and not self._is_active(code):
                self._begin(code, raised_at)
                self._ahead[code] = (raised_at, now)
            if event.severity is not None and self._is_active(code):
                self._change(code, severity=event.severity)

    def note_due(self, now: float) -> None:
        """Note that a reading of the chip is due."""
        self._due_since = now if self._due_since is None else min(self._due_since, now)

    def has_waited(self, now: float) -> bool:
        """Whether an event has waited for a reading as long as one may."""
        since = self.unread_since
        return since is not None and not 0 <= now - since < UNREAD_SECONDS

    @property
    def unread_since(self) -> float | None:
        """Since when an event has waited for a reading; None if none does."""
        return self._unread_events[0][1] if self._unread_events else None

    def confirm_and_take(self, reading: HealthSample, now: float) -> None:
        """Take the part of a fresh reading that an earlier one or an event confirms."""
        active = {code for code in self._memory if self._is_active(code)}
        events = {event.code for event, _ in self._unread_events}
        known = active | events | self._ahead.keys()
        self.take_confirmed(self._agreement.confirmed(reading, known, now), now)

    def take_confirmed(self, reading: HealthSample, now: float) -> None:
        """Take a confirmed reading: the codes that it lists are active, other codes are not.

        While an answer is pending, the reading before it stands, but events count.
        """
        if not reading.pending or not self._was_read:
            self._reading = reading
        self._was_read |= not reading.pending
        self._advance(now)
        events, self._unread_events = self._unread_events, []
        for event, at in events:
            if reading.pending or at <= reading.began:
                self._replay(event, at)
            else:
                self._unread_events.append((event, at))
        if reading.pending:
            return
        self._due_since, self._is_silent = None, False
        read_before, self._read_at = self._read_at, now
        if reading.gone or reading.unmonitored:
            self._failing_since = (
                now if self._failing_since is None else min(self._failing_since, now)
            )
            self._unexplained = None
            self._judge_absence(reading, now)
            return
        self._booting_since = self._failing_since = None
        self._end(CARD_DROPPED, now)
        if reading.codes is not None:
            self._take_list(reading.codes, reading, read_before, now)
        self._judge_alarm(reading.severity, now)
        self._forget(now)

    def _take_list(
        self, listed: Mapping[int, str], reading: HealthSample, read_before: float, now: float
    ) -> None:
        """Take a list of codes; the last reading before it came at *read_before*.

        A full list may lack active codes: such a code ends by an event only.
        """
        later = {code for code, (_, told_at) in self._ahead.items() if told_at > reading.began}
        over = self._memory.keys() - listed.keys() - later
        if reading.is_full:
            over &= self._recovering.keys()
        for code, text in listed.items():
            told = self._ahead.pop(code, None)  # by its event, before a list that lacked it yet
            self._begin_if_new(code, text, told[0] if told else now, is_counted=bool(told))
            if code not in self._table.levels:
                self._change(code, alarm=reading.severity)
        for code in over - {ALARM_WITHOUT_CODE}:
            recovered = self._recovering.get(code, now)
            if self._is_active(code):
                self._over[code] = now
            self._end(code, recovered if read_before <= recovered < now else now)

    def _judge_absence(self, reading: HealthSample, now: float) -> None:
        """Begin CARD_DROPPED for a chip that is gone or does not finish booting."""
        if reading.gone:
            self._booting_since = None
            self._begin_if_new(CARD_DROPPED, "the chip does not exist any more", now)
        elif reading.booting:
            self._booting_since = (
                now if self._booting_since is None else min(self._booting_since, now)
            )
            if now - self._booting_since >= BOOT_SECONDS:
                text = f"for {BOOT_SECONDS:g} s {reading.unmonitored}"
                self._begin_if_new(CARD_DROPPED, text, now)

    def _judge_alarm(self, alarm: Severity, now: float) -> None:
        """Make an alarm a fault of its own if the list of codes has not explained it in time."""
        is_explained = any(
            self._explains(code, alarm) for code in self._memory.keys() - {ALARM_WITHOUT_CODE}
        )
        if alarm < Severity.MAJOR or is_explained:
            self._unexplained = None
            self._end(ALARM_WITHOUT_CODE, now)
            return
        if self._unexplained is None:
            self._unexplained = now
        if not 0 <= now - self._unexplained < RECOVERY_LAG:
            self._begin_if_new(ALARM_WITHOUT_CODE, "alarm without a code", now)
        if self._is_active(ALARM_WITHOUT_CODE):
            self._change(ALARM_WITHOUT_CODE, alarm=alarm)

    def _explains(self, code: int, alarm: Severity) -> bool:
        """Whether a code can be the reason for an alarm.

        A code that makes the chip unhealthy explains any alarm. A milder code explains an alarm up
        to the severity of its last event, or up to a major one if no event had a severity.
        """
        known = self._memory[code]
        if known.since is None:
            return False
        level, _ = self._level(code, known)
        severity = Severity.MAJOR if known.severity is None else known.severity
        return level.is_unhealthy or alarm <= severity

    def release(self, now: float) -> bool:
        """Undo what frequency rules did, and reset their counts; return whether any had applied."""
        separated = [code for code, known in self._memory.items() if known.separated is not None]
        for code in separated:
            self._memory[code] = self._memory[code].released()
        self._forget(now)
        return bool(separated)

    def derived(self, code: int) -> int | None:
        """The code that was derived from one that is active."""
        known = self._memory.get(code)
        return known.derived if known is not None else None

    def derive(self, code: int, derived: int | None) -> None:
        """Remember what follows from a code, also over a restart, until it is over."""
        if self._is_active(code):
            self._change(code, derived=derived)

    # --- the result ------------------------------------------------------------------------------

    def health(self, now: float) -> ChipHealth:
        """The chip's health at *now*."""
        self._advance(now)
        known = (self._fault(code, known) for code, known in self._memory.items())
        faults = [fault for fault in known if fault is not None]
        young = [f.since for f in faults if 0 <= now - f.since < self._settle_seconds]
        self._settles_at = min(young) + self._settle_seconds if young else None
        unread = self._reading.unmonitored
        if self._due_since is not None and now - self._due_since >= SILENT_SECONDS:
            self._is_silent = True
        if self._is_silent and not unread:
            unread = f"no answer for {SILENT_SECONDS:g} s"
        doubt = "an alarm that no code explains yet" if self._is_in_doubt else ""
        return ChipHealth(
            faults=worst_first(replace(f, is_settled=f.since not in young) for f in faults),
            unmonitored=unread or doubt,
            is_doubt=self._reading.missing if unread else bool(doubt),
            network=self.network,
        )

    @property
    def is_gone(self) -> bool:
        """Whether the chip was found gone, and has neither answered nor booted since."""
        return self._is_active(CARD_DROPPED) and self._booting_since is None

    def has_failed_long(self, now: float) -> bool:
        """Whether readings have brought errors alone for longer than a boot may take."""
        return self._failing_since is not None and now - self._failing_since >= BOOT_SECONDS

    @property
    def recheck_at(self) -> float | None:
        """When to read again a chip whose events, alarm and list of codes do not agree yet."""
        times = [self._agreement.reread_at]
        if self._is_in_doubt and self._unexplained is not None:
            times.append(self._unexplained + RECOVERY_LAG)
        if self._reading.is_whole:  # without the list of codes a reading brings nothing new
            times += (self._next_look(at, RECOVERY_LAG) for at in self._recovering.values())
            times += (self._next_look(at, _OCCURRENCE_LAG) for _, at in self._ahead.values())
        return min((at for at in times if at is not None), default=None)

    def _next_look(self, told_at: float, lag: float) -> float | None:
        """When to look whether the list agrees with an event: ever more rarely, then no more."""
        while lag <= self._read_at - told_at:
            lag *= 2
        return told_at + lag if lag < PATIENCE else None

    @property
    def _is_in_doubt(self) -> bool:
        return self._unexplained is not None and not self._is_active(ALARM_WITHOUT_CODE)

    @property
    def next_change(self) -> float | None:
        """When the health changes if nothing happens."""
        times = [known.next_change(self._table.rules(code)) for code, known in self._memory.items()]
        times.append(self._settles_at)
        if (unread_since := self.unread_since) is not None:
            times.append(unread_since + UNREAD_SECONDS)
        return min((at for at in times if at is not None), default=None)

    def _fault(self, code: int, known: CodeMemory) -> Fault | None:
        rules = self._table.rules(code)  # a memory may be of a version with other rules
        if rules.frequency is not None and known.separated is not None:
            level, rule, since = rules.frequency.level, str(rules.frequency), known.separated
        elif rules.duration is not None and known.lasting:
            level, rule = rules.duration.level, str(rules.duration)
            since = known.since if known.since is not None else known.ended or 0.0
        elif known.since is not None:
            (level, rule), since = self._level(code, known), known.since
        else:
            return None
        return Fault(code=code, level=level, rule=rule, text=known.text, since=since)

    def _level(self, code: int, known: CodeMemory) -> tuple[FaultLevel, str]:
        severity = known.severity if known.severity is not None else known.alarm
        return self._table.level(code, severity)

    # --- the memory of one code ------------------------------------------------------------------

    def _is_active(self, code: int) -> bool:
        known = self._memory.get(code)
        return known is not None and known.since is not None

    def _begin_if_new(self, code: int, text: str, now: float, *, is_counted: bool = False) -> None:
        if not self._is_active(code):
            self._begin(code, now, is_counted=is_counted)
        if text:
            self._change(code, text=text)

    def _begin(self, code: int, at: float, *, is_counted: bool = False) -> None:
        """Begin and count it; event and list of one occurrence find it begun by the other."""
        self._memory[code] = self._memory.get(code, CodeMemory()).begun(at)
        if not is_counted:
            self._count(code, at)

    def _count(self, code: int, at: float) -> None:
        """Count it for a frequency rule, unless its duration decides (`CodeMemory.advanced`)."""
        rule = self._table.frequency.get(code)
        if rule is not None and code not in self._table.duration:
            self._memory[code] = self._memory.get(code, CodeMemory()).counted(rule, at)

    def _end(self, code: int, now: float) -> None:
        if self._is_active(code):
            self._recovering.pop(code, None)
            memory = self._memory[code].advanced(self._table.rules(code), now)
            self._memory[code] = memory.over(now)

    def _change(self, code: int, **values: object) -> None:
        self._memory[code] = self._memory[code].model_copy(update=values)

    def _advance(self, now: float) -> None:
        """Apply the rules up to *now*."""
        for code, known in self._memory.items():
            self._memory[code] = known.advanced(self._table.rules(code), now)

    def _forget(self, now: float) -> None:
        """Drop what decides nothing any more."""
        for code in [code for code, at in self._recovering.items() if is_stale(at, now)]:
            del self._recovering[code]
        for code in [code for code, at in self._over.items() if is_stale(at, now)]:
            del self._over[code]
        for code in [code for code, (_, at) in self._ahead.items() if is_stale(at, now)]:
            del self._ahead[code]
        for code, known in list(self._memory.items()):
            if not known.is_needed(self._table.rules(code), now):
                del self._memory[code]
