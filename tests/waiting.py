"""How tests wait for what has no event: a file, a request, a log line, what a thread does."""

import socket
from collections.abc import Callable
from pathlib import Path

import trio


async def until(is_true: Callable[[], bool]) -> None:
    """Wait until it is; the caller has the deadline."""
    while not is_true():  # noqa: ASYNC110 - see above
        await trio.sleep(0.001)


def listens(path: Path) -> bool:
    """Whether connections are accepted there; the socket of a dead process does not count."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0
