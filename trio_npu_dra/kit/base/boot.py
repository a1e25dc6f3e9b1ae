"""This boot of the node: its id, and a clock that nobody sets while it lasts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""Where Linux says which boot this is, in containers too."""

_SET_SECONDS: Final = 60.0
"""Clocks that differ by more were set in between; by less, they were slewed."""


def read_boot_id(path: Path = BOOT_ID) -> str:
    """Which boot of the node this is; empty if it cannot be told."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def seconds_since_boot() -> float:
    """How long the node has run, suspended or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """A boot of the node, on somebody's clock.

    Attributes:
        id: Which one; empty if it cannot be told.
        began: When, in seconds since 1970 as that clock has it.
    """

    id: str
    began: float

    def set_since(self, earlier: Boot) -> float:
        """By how many seconds the clock was set forward since *earlier* (back if negative).

        0.0 if that is not known, because it was another boot.
        """
        seconds = self.began - earlier.began
        is_known = self.id == earlier.id != ""
        return seconds if is_known and abs(seconds) > _SET_SECONDS else 0.0


class SteadyClock:
    """Seconds since 1970, as the node's clock said when this one was made, and steady since.

    What was to last for hours must not end because somebody set the node's clock.

    Args:
        wall: The node's clock.
        running: Seconds since the boot.
        boot_id: Which boot it is.
    """

    def __init__(
        self,
        *,
        wall: Callable[[], float] = time.time,
        running: Callable[[], float] = seconds_since_boot,
        boot_id: str | None = None,
    ) -> None:
        self._running = running
        self.boot = Boot(
            id=read_boot_id() if boot_id is None else boot_id, began=wall() - running()
        )

    def __call__(self) -> float:
        """What time it is."""
        return self.boot.began + self._running()
