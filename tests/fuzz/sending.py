"""A client that sends bytes of a test's and then listens."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

SECONDS: Final = 10.0


def send(path: Path, data: bytes, *, pause: Callable[[], object] = lambda: None) -> bytes:
    """Send bytes to a unix socket, say that there are no more, and read until the server hangs up.

    Args:
        path: The socket.
        data: What to send.
        pause: Called before it is said that there are no more.

    Raises:
        TimeoutError: The server did not.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(SECONDS)
        peer.connect(str(path))
        try:
            peer.sendall(data)
            pause()
            peer.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough, and may have said so
        return _read(peer)


def _read(peer: socket.socket) -> bytes:
    answer = bytearray()
    try:
        while part := peer.recv(1 << 16):
            answer += part
    except ConnectionResetError:
        pass  # it hung up with something unread
    return bytes(answer)
