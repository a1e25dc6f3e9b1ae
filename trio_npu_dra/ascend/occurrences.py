"""Counts how often a fault code came, which events and the list of active codes both tell.

They tell it at different times and in either order: an event can be ahead of the list, and a
reading of the list ahead of the event. What each says is counted apart. Events tell every
occurrence unless some are lost; the list shows an occurrence at most once, and none that is over
before a reading. So the larger number is right: neither counts what the other has counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent

PATIENCE: Final = 60.0
"""Seconds by which the list and the events may be apart and still mean the same occurrence."""


@dataclass(slots=True, kw_only=True)
class Occurrences:
    """The occurrences of one code on one chip.

    Attributes:
        told: How many the events told.
        listed: How many the list showed.
        is_open: Whether events told the last occurrence, and not its end.
        is_listed: Whether the last list had the code.
        raised_at: When the last one came, as its event says.
        changed_at: When something was told last, in seconds since 1970.
    """

    told: int = 0
    listed: int = 0
    is_open: bool = False
    is_listed: bool = False
    raised_at: float | None = None
    changed_at: float = 0.0

    def hear(self, event: FaultEvent, now: float) -> bool:
        """Take in an event.

        Returns:
            Whether it tells of an occurrence that was not counted yet.
        """
        before = self._count(now)
        if event.assertion is Assertion.RECOVERY:
            if not self.is_open and self.told < self.listed:
                self.told += 1  # its beginning was told before the subscription, or was lost
            self.is_open = False
        elif event.assertion is Assertion.NOTICE:
            self.told += 1
        elif event.assertion is Assertion.OCCURRENCE and not self._is_repeated(event):
            self.told += 1
            self.is_open, self.raised_at = True, event.raised_at
        self.changed_at = now
        return max(self.told, self.listed) > before

    def see(self, now: float, *, is_listed: bool) -> bool:
        """Take in whether a list has the code.

        Returns:
            Whether it shows an occurrence that was not counted yet.
        """
        before = self._count(now)
        if is_listed and not self.is_listed:
            self.listed += 1
        if is_listed != self.is_listed:
            self.changed_at = now
        self.is_listed = is_listed
        return max(self.told, self.listed) > before

    def is_over(self, now: float) -> bool:
        """Whether nothing that was told can matter any more."""
        return not self.is_listed and self._is_late(now)

    def _is_repeated(self, event: FaultEvent) -> bool:
        return self.is_open and (self.is_listed or event.raised_at == self.raised_at)

    def _is_late(self, now: float) -> bool:
        return not 0 <= now - self.changed_at < PATIENCE

    def _count(self, now: float) -> int:
        """How many were counted; nothing that only one has told waits for the other for ever."""
        if self._is_late(now):
            self.told = self.listed = 0
            self.is_open = self.is_open and self.is_listed
        return max(self.told, self.listed)
