"""One HTTP/2 connection on trio, of either side: h2 knows the protocol, this moves the bytes."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final, TypeAlias, TypeVar, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import trio
from betterproto2 import Message
from grpclib.const import Status
from grpclib.exceptions import StreamTerminatedError
from h2.errors import ErrorCodes

from trio_npu_dra.kit.grpc.messages import PREFIX, parse
from trio_npu_dra.kit.grpc.service import RpcError

MessageT = TypeVar("MessageT", bound=Message)
Headers: TypeAlias = list[tuple[str, str]]

READ_BYTES: Final = 4 << 10
"""Of one connection before others get their turn: a call, or 240 pings."""

TABLE_BYTES: Final = 4096
"""Size of the header table that we keep for a peer, HTTP/2's default; a peer may ask for 4 GiB."""


class StreamEnded(StreamTerminatedError):
    """Nothing can be sent on the stream: its peer has reset it, or the connection has ended."""


class _Protocol(h2.connection.H2Connection):
    """HTTP/2 with the settings of grpclib; h2 alone remembers 65,536 streams that have ended."""

    MAX_CLOSED_STREAMS = 1000

    def __init__(self, *, is_client: bool) -> None:
        super().__init__(
            h2.config.H2Configuration(
                client_side=is_client,
                header_encoding="ascii",
                validate_inbound_headers=False,
                validate_outbound_headers=False,
                normalize_inbound_headers=False,
                normalize_outbound_headers=False,
            )
        )


class Connection:
    """A connection.

    Args:
        peer: Connected; does not block.
        is_client: Whether this side calls.

    Attributes:
        h2: The protocol.
        calls: Those that have begun and not ended, by the number of their stream.
        is_open: Whether neither side has ended the connection.
    """

    def __init__(self, peer: socket.socket, *, is_client: bool) -> None:
        self.h2 = _Protocol(is_client=is_client)
        self.calls: dict[int, Call] = {}
        self.is_open = True
        self._has_settings = False
        self._peer = peer
        self._unsent = bytearray()
        self._has_unsent = trio.Event()
        self._changed = trio.Event()
        self.h2.initiate_connection()
        self.flush()

    @property
    def has_room(self) -> bool:
        """Whether the peer allows one more call of ours."""
        most = self.h2.remote_settings.max_concurrent_streams
        return self._has_settings and self.h2.open_outbound_streams < most

    async def receive(self) -> list[h2.events.Event]:
        """What the peer does next; nothing once it has hung up or sent GOAWAY.

        Raises:
            Exception: It has sent what is no HTTP/2; h2 raises many types.
        """
        while self.is_open:
            await trio.lowlevel.wait_readable(self._peer)
            try:
                data = self._peer.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                break
            if not data:
                break
            events = self.h2.receive_data(data)
            self.flush()
            if events:
                return events
        return []

    def handle(self, event: h2.events.Event) -> None:
        """Do what every side does about an event."""
        match event:
            case h2.events.RemoteSettingsChanged():
                self._has_settings = True
                encoder = self.h2.encoder
                if encoder.header_table_size > TABLE_BYTES:  # noqa: PLR1730 - else it would hide a change
                    encoder.header_table_size = TABLE_BYTES
                self.wake()
            case h2.events.WindowUpdated() | h2.events.StreamEnded() | h2.events.StreamReset():
                self.wake()
            case h2.events.ConnectionTerminated():
                self.is_open = False
        if call := self.calls.get(getattr(event, "stream_id", None) or 0):
            match event:
                case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                    call.headers.update(cast("Headers", event.headers))
                case h2.events.DataReceived():
                    call.feed(event.data, event.flow_controlled_length)
                case h2.events.StreamEnded():
                    call.end()
                case h2.events.StreamReset():
                    call.lose("the peer has reset the call")

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
            while self._unsent:
                with suppress(trio.ClosedResourceError):
                    await trio.lowlevel.wait_writable(self._peer)
                self._send()
            self.wake()

    async def until_sent(self) -> None:
        """Wait until the peer has taken all that was sent."""
        while self._unsent:
            await self._changed.wait()

    async def until_change(self) -> None:
        """Wait until a window has grown, a call has ended, or the like."""
        await self._changed.wait()

    def wake(self) -> None:
        """Let those look again who wait for a change."""
        self._changed.set()
        self._changed = trio.Event()

    def send_headers(self, call: Call, headers: Headers, *, end: bool) -> None:
        """Begin or end a call; `flush` or `send_data` sends it.

        Raises:
            StreamEnded: There is no such stream any more.
        """
        try:
            self.h2.send_headers(call.number, headers, end_stream=end)
        except h2.exceptions.ProtocolError as error:
            raise StreamEnded(str(error)) from error

    async def send_data(self, call: Call, data: bytes, *, end: bool = False) -> None:
        """Send data as fast as the peer reads it; *end* ends our side of the stream.

        Raises:
            StreamEnded: There is no such stream any more.
        """
        at = 0
        while at < len(data):
            if call.is_lost:
                raise StreamEnded("the peer has ended the call")
            try:
                room = 0 if self._unsent else self.h2.local_flow_control_window(call.number)
                size = min(room, self.h2.max_outbound_frame_size, len(data) - at)
                if size > 0:
                    part, at = data[at : at + size], at + size
                    self.h2.send_data(call.number, part, end_stream=end and at == len(data))
            except h2.exceptions.ProtocolError as error:
                raise StreamEnded(str(error)) from error
            self.flush()
            if size <= 0:
                await self._changed.wait()

    def reset(self, call: Call, code: ErrorCodes) -> None:
        """End a call at once; one that both sides have ended is fine."""
        with suppress(h2.exceptions.ProtocolError):
            self.h2.reset_stream(call.number, code)
        self.flush()

    def close(self, code: ErrorCodes = ErrorCodes.NO_ERROR, reason: str = "") -> None:
        """Say goodbye, as far as the peer reads, and close the socket; its calls are lost."""
        if self._peer.fileno() < 0:
            return
        self.is_open = False
        with suppress(h2.exceptions.ProtocolError):
            self.h2.close_connection(code)
        self.flush()
        self._unsent.clear()
        trio.lowlevel.notify_closing(self._peer)
        self._peer.close()
        for call in tuple(self.calls.values()):
            call.lose(reason or "the connection was closed")
        self.wake()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._peer.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the peer has hung up, as `receive` will tell
            self._unsent.clear()


class Call:
    """A call; what the peer sends of it is kept until it is read, so a slow reader slows the peer.

    Args:
        connection: Its connection.
        number: Of its HTTP/2 stream.
        message_bytes: Limit of a message.

    Attributes:
        number: Of its HTTP/2 stream.
        headers: What the peer's headers and trailers say.
        is_lost: Whether the peer has reset it, or the connection has ended.
    """

    def __init__(self, connection: Connection, number: int, message_bytes: int) -> None:
        self.number = number
        self.headers: dict[str, str] = {}
        self.is_lost = False
        self._connection = connection
        self._message_bytes = message_bytes
        self._data = bytearray()
        self._unacknowledged = 0
        self._is_whole = False
        self._loss = ""
        self._news = trio.Event()
        connection.calls[number] = self

    def feed(self, data: bytes, window: int) -> None:
        """Take the data of a frame, which counts for *window* bytes."""
        self._data += data
        self._unacknowledged += window
        self._tell()

    def end(self) -> None:
        """Note that the peer sends no more."""
        self._is_whole = True
        self._tell()

    def lose(self, reason: str) -> None:
        """Note that nothing more can be sent, and nothing comes."""
        self.is_lost = True
        if not self._is_whole:
            self._loss = reason
            self.end()

    def close(self, code: ErrorCodes) -> None:
        """Drop what was not read, and reset the call unless both sides have ended it."""
        self._connection.calls.pop(self.number, None)
        self._acknowledge()
        self._connection.reset(self, code)

    async def message(self, message_type: type[MessageT]) -> MessageT | None:
        """Wait for the next message; None when the peer has ended its side.

        Raises:
            RpcError: It is too large, no such message, or lost.
        """
        prefix = await self._read(PREFIX.size)
        if not prefix:
            return None
        if len(prefix) == PREFIX.size:
            is_compressed, size = PREFIX.unpack(prefix)
            if is_compressed:
                raise RpcError(Status.UNIMPLEMENTED, "compressed messages are not supported")
            if size > self._message_bytes:
                text = f"message of {size} bytes, the limit is {self._message_bytes}"
                raise RpcError(Status.RESOURCE_EXHAUSTED, text)
            body = await self._read(size)
            if len(body) == size:
                return parse(message_type, body)
        raise RpcError(Status.INTERNAL, "the call ends within a message")

    async def _read(self, size: int) -> bytes:
        """Read just so many bytes; fewer, if the peer ends its side before."""
        while len(self._data) < size and not self._is_whole:
            self._acknowledge()  # all that has come is wanted, and more
            await self._news.wait()
        if self._loss and len(self._data) < size:
            raise RpcError(Status.UNAVAILABLE, self._loss)
        found = bytes(self._data[:size])
        del self._data[:size]
        if not self._data:
            self._acknowledge()
        return found

    def _acknowledge(self) -> None:
        if self._unacknowledged:
            self._connection.h2.acknowledge_received_data(self._unacknowledged, self.number)
            self._unacknowledged = 0
            self._connection.flush()

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()
