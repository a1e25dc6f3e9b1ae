"""Waiting for conditions without an event: a file, a request, a log line, a thread's work."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

HANG_SECONDS: Final = 60.0
"""Ends a wait that has gone wrong; on an idle machine a right one takes less than a second."""


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until it is true; the caller sets the deadline."""
    while not is_true():  # noqa: ASYNC110 - see above
        await trio.sleep(0.001)


def listens(path: Path) -> bool:
    """Whether a process accepts connections there; a dead process's socket does not count."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
