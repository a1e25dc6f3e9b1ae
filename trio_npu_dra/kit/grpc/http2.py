"""One HTTP/2 connection on trio, of either side: h2 knows the protocol, this moves the bytes."""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from typing import Final

import h2.config
import h2.connection
import h2.errors
import h2.exceptions
import trio
from grpclib.exceptions import StreamTerminatedError

READ_BYTES: Final = 64 << 10


class Protocol(h2.connection.H2Connection):
    """HTTP/2 without checks of headers: each side checks those that it reads.

    It remembers 1,000 streams that have ended; h2 alone remembers 65,536, each with its own entry.
    """

    MAX_CLOSED_STREAMS = 1000

    def __init__(self, *, is_client: bool) -> None:
        super().__init__(
            h2.config.H2Configuration(
                client_side=is_client,
                header_encoding="ascii" if is_client else None,
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )

    def end(self) -> None:
        """Receive nothing any more: h2's table of methods is a reference cycle, of 14 KiB."""
        self._frame_dispatch_table.clear()


class StreamEnded(StreamTerminatedError):
    """Nothing can be sent on the stream: its peer has reset it, or the connection has ended."""


class Connection:
    """A connection.

    Args:
        peer: Connected; does not block.
        protocol: Its side of HTTP/2, which has sent its greeting to `flush`.

    Attributes:
        h2: The protocol.
    """

    def __init__(self, peer: socket.socket, protocol: Protocol) -> None:
        self.h2 = protocol
        self._peer = peer
        self._is_closed = False
        self._unsent = bytearray()
        self._has_unsent = trio.Event()
        self._room = trio.lowlevel.ParkingLot()
        self._waiting: dict[object, float] = {}  # since when, the oldest first

    @property
    def blocked_since(self) -> float:
        """Since when the peer does not read what we send; infinity if it does."""
        return next(iter(self._waiting.values()), math.inf)

    async def receive(self) -> bytes:
        """What the peer sends next; nothing once it has hung up, or this side has."""
        while not self._is_closed:
            try:
                await trio.lowlevel.wait_readable(self._peer)
                return self._peer.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError):
                break
        return b""

    def flush(self) -> None:
        """Send what h2 has to send; `keep_sending` sends what the peer does not take now."""
        self._unsent += self.h2.data_to_send()
        self._send()
        if self._unsent:
            self._has_unsent.set()

    async def keep_sending(self) -> None:
        """Send what could not be sent at once, until cancelled."""
        while True:
            await self._has_unsent.wait()
            self._has_unsent = trio.Event()
            self._waiting[self] = trio.current_time()
            while self._unsent:
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._peer)
                self._send()
            del self._waiting[self]
            self.wake_senders()

    async def until_taken(self) -> None:
        """Wait until the peer has taken all that was sent; at once, if it has."""
        mark = object()
        try:
            while self._unsent:
                self._waiting.setdefault(mark, trio.current_time())
                await self._room.park()
        finally:
            self._waiting.pop(mark, None)

    async def send_data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data as fast as the peer reads it; `flush` sends the last part.

        Args:
            stream: The number of the stream.
            data: Not empty.
            end: Whether it ends our side of the stream.

        Raises:
            StreamEnded: There is no such stream any more.
        """
        mark, sent = object(), 0
        try:
            while sent < len(data):
                room = 0 if self._unsent else self.h2.local_flow_control_window(stream)
                size = min(room, self.h2.max_outbound_frame_size, len(data) - sent)
                if size > 0:
                    if sent:
                        self.flush()
                    part, sent = data[sent : sent + size], sent + size
                    self.h2.send_data(stream, part, end_stream=end and sent == len(data))
                else:
                    self._waiting.setdefault(mark, trio.current_time())
                    self.flush()
                    await self._room.park()
        except h2.exceptions.ProtocolError as error:
            raise StreamEnded(str(error)) from error
        finally:
            self._waiting.pop(mark, None)

    def send_headers(self, stream: int, headers: list[tuple[str, str]], *, end: bool) -> None:
        """Begin or end a stream; `flush` sends it.

        Raises:
            StreamEnded: There is no such stream any more.
        """
        try:
            self.h2.send_headers(stream, headers, end_stream=end)
        except h2.exceptions.ProtocolError as error:
            raise StreamEnded(str(error)) from error

    def wake_senders(self) -> None:
        """Let those look who wait to send: a window has grown, or a stream has ended."""
        self._room.unpark_all()

    async def until_change(self) -> None:
        """Wait until `wake_senders`."""
        await self._room.park()

    def reset(self, stream: int, code: h2.errors.ErrorCodes) -> None:
        """End a stream at once; one that has ended is fine."""
        with suppress(h2.exceptions.ProtocolError):
            self.h2.reset_stream(stream, code)
        self.flush()

    def say_goodbye(self, code: h2.errors.ErrorCodes) -> None:
        """Send GOAWAY, as far as the peer reads."""
        self.h2.close_connection(code)
        self.flush()

    def close(self) -> None:
        """Close the socket; nothing more is sent."""
        if not self._is_closed:
            self._is_closed = True
            self._unsent.clear()
            trio.lowlevel.notify_closing(self._peer)
            self._peer.close()
            self.h2.end()
            self.wake_senders()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._peer.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the peer has hung up, as `receive` will tell
            self._unsent.clear()


class Inbound:
    """What the peer sends on one stream, until it is read.

    The peer may send more once that is read, so a slow reader slows its peer down.

    Args:
        connection: The connection.
        stream: The number of the stream.

    Attributes:
        is_whole: Whether the peer has ended it.
    """

    def __init__(self, connection: Connection, stream: int) -> None:
        self.is_whole = False
        self._connection = connection
        self._stream = stream
        self._data = bytearray()
        self._unacknowledged = 0
        self._is_closed = False
        self._news = trio.lowlevel.ParkingLot()

    def feed(self, data: bytes, window: int) -> None:
        """Take the data of a frame, which counts for *window* bytes."""
        self._unacknowledged += window
        if self._is_closed:
            self._acknowledge()
        else:
            self._data += data
            self._news.unpark_all()

    def end(self) -> None:
        """Note that the peer has ended it."""
        self.is_whole = True
        self._news.unpark_all()

    def close(self) -> None:
        """Drop what was not read, and what may still come."""
        self._is_closed = True
        self._data.clear()
        self._acknowledge()
        self._news.unpark_all()

    async def until_data(self) -> bool:
        """Wait for data; False if none will come any more."""
        while not self._data and not self._is_over:
            await self._news.park()
        return bool(self._data)

    async def read(self, size: int) -> bytes:
        """Read just so many bytes; fewer, if the stream ends before."""
        while len(self._data) < size and not self._is_over:
            self._acknowledge()  # all that has come is wanted, and more
            await self._news.park()
        found = bytes(self._data[:size])
        del self._data[:size]
        if not self._data:
            self._acknowledge()
        return found

    @property
    def _is_over(self) -> bool:
        return self.is_whole or self._is_closed

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._connection.h2.acknowledge_received_data(self._unacknowledged, self._stream)
            self._unacknowledged = 0
            self._connection.flush()
