"""The times of files, which file systems take from a clock that stands still between ticks."""

from __future__ import annotations

import time
from typing import Final

_CLOCK_REALTIME_COARSE: Final = 5  # <linux/time.h>; `time` has no name for it


def next_tick() -> None:
    """Return when a change of a file gets a later time than all changes before the call."""
    start = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) == start:
        time.sleep(0.001)
