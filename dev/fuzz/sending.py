"""A client that sends a test's bytes and then listens."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

SECONDS: Final = 10.0


def send(path: Path, data: bytes, *, pause: Callable[[], object] = lambda: None) -> bytes:
    """Send bytes to a unix socket, end our side, and read until the server hangs up.

    Args:
        path: The socket.
        data: What to send.
        pause: Called before our side ends.

    Raises:
        TimeoutError: The server did not hang up.
    """
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(SECONDS)
        peer.connect(str(path))
        try:
            peer.sendall(data)
            pause()
            peer.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the server has read enough, and may have answered
        return _read(peer)


def _read(peer: socket.socket) -> bytes:
    answer = bytearray()
    try:
        while part := peer.recv(1 << 16):
            answer += part
    except ConnectionResetError:
        pass  # the server hung up with unread bytes
    return bytes(answer)
