"""Writes of one turn of the loop, sent with one system call."""

from __future__ import annotations

import asyncio
from typing import Any, Final

GATHERED_BYTES: Final = 64 << 10
"""How much may wait for the end of a turn: asyncio's own limit before it lets writers wait."""


class GatheringTransport(asyncio.Transport):
    """A transport, as far as grpclib uses one, that sends once each turn.

    A reply of grpclib is three writes (headers, message, trailers). A task that waits in between,
    for the peer to read, ends the turn: so nothing is held back while anybody waits.

    Args:
        transport: The connection's own.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._gathered: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send *data* with what else is written in this turn."""
        if not self._gathered:
            self._loop.call_soon(self._flush)
        self._gathered.append(bytes(data))
        self._size += len(data)
        if self._size >= GATHERED_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the connection once all is sent."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether the connection ends."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What asyncio knows of the connection."""
        return self._transport.get_extra_info(name, default)

    def _flush(self) -> None:
        if self._gathered and not self._transport.is_closing():
            self._transport.write(b"".join(self._gathered))
        self._gathered.clear()
        self._size = 0
