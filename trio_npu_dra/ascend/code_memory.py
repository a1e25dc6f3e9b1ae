"""The memory of one fault code of one chip.

It outlasts a restart in `faults.json`, and applies the rules to the code with time.
"""

import math
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from trio_npu_dra.ascend.dcmi.types import Severity
from trio_npu_dra.ascend.faults import CodeRules, FrequencyRule

_YEARS_END: Final = 253_402_300_799.0  # 9999-12-31T23:59:59Z

Seconds = Annotated[float, Field(ge=0, le=_YEARS_END, allow_inf_nan=False)]
"""A time in seconds since 1970 that can be written as a date."""

PATIENCE: Final = 60.0
"""Seconds by which the list and the events may be apart and still mean the same occurrence."""


class CodeMemory(BaseModel):
    """The part that a restart must not lose; times in seconds since 1970.

    Attributes:
        since: When it began; None if it is not active.
        text: The library's message for it.
        severity: That of its last event.
        alarm: The worst in the chip's health when the code was last listed; for codes that the
            table does not know.
        occurred: When it came lately, or had lasted if a duration rule says how long it must; for
            codes with a frequency rule.
        separated: When a frequency rule applied; None if none did or it was released.
        lasting: Whether a duration rule applies, not released yet.
        ended: When it ended, while *lasting*.
        derived: The code that follows from this one while it is active; for UB ports, which are
            judged by what other chips had when it began (`ascend.port_faults`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    since: Seconds | None = None
    text: str = ""
    severity: Severity | None = None
    alarm: Severity | None = None
    occurred: tuple[Seconds, ...] = ()
    separated: Seconds | None = None
    lasting: bool = False
    ended: Seconds | None = None
    derived: int | None = None

    # --- what happens, each time as a new memory --------------------------------------------------

    def begun(self, at: float) -> Self:
        """The code is active since *at*."""
        return self.model_copy(update={"since": at, "ended": None})

    def over(self, at: float) -> Self:
        """The code ended at *at*; the rules were applied up to then."""
        ended = at if self.lasting else None
        return self.model_copy(update={"since": None, "ended": ended, "derived": None})

    def counted(self, rule: FrequencyRule, at: float) -> Self:
        """The code came once more, or had lasted once more; that may be when the rule applies."""
        recent = [time for time in self.occurred if abs(at - time) < rule.window_seconds]
        occurred = (*recent, at)[-rule.times :]
        separated = self.separated
        if separated is None and len(occurred) == rule.times:
            separated = at
        return self.model_copy(update={"occurred": occurred, "separated": separated})

    def released(self, at: float = math.inf) -> Self:
        """What a frequency rule did up to *at* is undone, and its count begins again."""
        if self.separated is None or self.separated > at:
            return self
        occurred = tuple(time for time in self.occurred if time > at)
        return self.model_copy(update={"separated": None, "occurred": occurred})

    def moved(self, seconds: float) -> Self:
        """All times later by *seconds*, because the clock was set; none before 1970."""
        times = {name: max(0.0, time + seconds) for name, time in self._times.items()}
        occurred = tuple(max(0.0, time + seconds) for time in self.occurred)
        return self.model_copy(update={**times, "occurred": occurred})

    # --- what time brings ------------------------------------------------------------------------

    def advanced(self, rules: CodeRules, now: float) -> Self:
        """The rules are applied up to *now*; future times mean that the clock was set back."""
        memory = self
        if future := {name: now for name, at in self._times.items() if at > now}:
            memory = memory.model_copy(update=future)
        frequency, duration = rules.frequency, rules.duration
        if (
            frequency is not None
            and frequency.release_seconds is not None
            and memory.separated is not None
            and now >= memory.separated + frequency.release_seconds
        ):
            memory = memory.released()
        if duration is None:
            return memory
        if memory.since is not None and not memory.lasting:
            lasted_at = memory.since + duration.fault_seconds
            if now >= lasted_at:
                memory = memory.model_copy(update={"lasting": True})
                memory = memory.counted(frequency, lasted_at) if frequency is not None else memory
        if memory.ended is not None and now >= memory.ended + duration.recover_seconds:
            memory = memory.model_copy(update={"lasting": False, "ended": None})
        return memory

    def next_change(self, rules: CodeRules) -> float | None:
        """When a rule changes something if nothing happens; None if none does."""
        times = []
        frequency, duration = rules.frequency, rules.duration
        if frequency and frequency.release_seconds and self.separated is not None:
            times.append(self.separated + frequency.release_seconds)
        if duration and self.since is not None and not self.lasting:
            times.append(self.since + duration.fault_seconds)
        if duration and self.ended is not None:
            times.append(self.ended + duration.recover_seconds)
        return min(times, default=None)

    def is_needed(self, rules: CodeRules, now: float) -> bool:
        """Whether the code is active, or a rule applies or may count it."""
        frequency = rules.frequency
        counts = frequency is not None and any(
            abs(now - at) < frequency.window_seconds for at in self.occurred
        )
        return self.since is not None or self.separated is not None or self.lasting or counts

    @property
    def _times(self) -> dict[str, float]:
        at = {"since": self.since, "separated": self.separated, "ended": self.ended}
        return {name: time for name, time in at.items() if time is not None}


def is_stale(since: float, now: float) -> bool:
    """Whether the other one, list or event, has not followed in time."""
    return not 0 <= now - since < PATIENCE
