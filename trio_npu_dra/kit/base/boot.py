"""This boot of the node: its id, and a clock that is steady until the next boot."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
"""The boot's id, in containers too."""

_SET_SECONDS: Final = 60.0
"""Clocks that differ by more were set in between; by less, they were slewed."""


def read_boot_id(path: Path = BOOT_ID) -> str:
    """The id of this boot; empty if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def seconds_since_boot() -> float:
    """Seconds since the boot, with the time that the node was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot of the node, as one process saw it.

    Attributes:
        id: Empty if unknown.
        began: Seconds since 1970, by the node's clock when the process started.
    """

    id: str
    began: float

    def set_since(self, earlier: Self) -> float:
        """Seconds by which the clock was set forward since *earlier* (back if negative).

        0.0 if that is unknown, because it was another boot.
        """
        seconds = self.began - earlier.began
        is_known = self.id == earlier.id != ""
        return seconds if is_known and abs(seconds) > _SET_SECONDS else 0.0


class SteadyClock:
    """Seconds since 1970 by the node's clock at the start, and steady since.

    A pause of hours must not end because an administrator sets the node's clock.
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
        """The time."""
        return self.boot.began + self._running()
