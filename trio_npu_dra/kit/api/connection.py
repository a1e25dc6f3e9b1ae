"""One connection to the API server: HTTP by h11, TLS by OpenSSL on the socket itself.

The layers that a library for HTTP and trio's streams put between them are half of a request's CPU.
"""

import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import h11
import trio

from trio_npu_dra.kit.api.bodies import too_large

T = TypeVar("T")

IDLE_SECONDS: Final = 85.0
"""Seconds after which an idle connection is not used again; the API server closes it after 90."""
KEEPALIVE: Final = (
    # These options find a silently dead peer in 30 s; a watch may be silent for minutes.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
HEAD_LIMIT: Final = 1 << 20
"""Bytes of an answer's headers; proxies add to them, and h11 would take 16 KiB."""
_READ_SIZE: Final = 1 << 16
"""More than a TLS record has, so that OpenSSL keeps nothing back of which no socket would tell."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where connections go.

    Attributes:
        host: Also the name in its certificate.
        unix_socket: Instead of *host* and *port*, if there is one.
    """

    host: str
    port: int
    unix_socket: Path | None


@dataclass(frozen=True, slots=True)
class Request:
    """A request; its headers have the length of its body."""

    method: str
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the names of *headers* are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """Serves one request after the other; made by `open`.

    Attributes:
        tls: The context that it was opened with; None without TLS.
        used_at: `trio.current_time()` of its last answer.
    """

    def __init__(self, opened: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._socket = opened
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
        self._arrivals = select.poll()
        self._arrivals.register(opened, select.POLLIN)
        self.used_at = trio.current_time()

    @classmethod
    async def open(cls, server: Server, tls: ssl.SSLContext | None) -> Self:
        """Connect.

        Raises:
            OSError: The server cannot be reached, or is another one; `ssl.SSLError` is one.
        """
        opened = await _connect(server)
        try:
            if tls is not None:
                opened = tls.wrap_socket(
                    opened, server_hostname=server.host, do_handshake_on_connect=False
                )
                await _until_done(opened, opened.do_handshake, trio.lowlevel.wait_readable)
        except BaseException:
            opened.close()
            raise
        return cls(opened, tls)

    @property
    def is_open(self) -> bool:
        """Whether the last answer left it open for another request."""
        return self._http.our_state is h11.IDLE

    @property
    def is_usable(self) -> bool:
        """Whether it is still open, and has not idled for too long."""
        is_late = trio.current_time() - self.used_at >= IDLE_SECONDS
        # The server has nothing to say between two requests but that it hangs up.
        return self.is_open and not is_late and not self._arrivals.poll(0)

    async def exchange(self, request: Request, asked: str, *, limit: int) -> Answer:
        """Send a request and read its whole answer; close, unless another request can follow.

        Raises:
            Unreadable: The answer has more than *limit* bytes.
            OSError: The connection broke.
            h11.ProtocolError: The answer is not HTTP, or ended too early; or h11 does not send such
                a request.
        """
        try:
            await self._send(request)
            answer = await self._receive(asked, limit)
        except BaseException:
            # Also when cancelled: a connection in an unknown state is not used again.
            self.close()
            raise
        both_done = self._http.our_state is self._http.their_state is h11.DONE
        if both_done and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
            self.used_at = trio.current_time()
        else:
            self.close()
        return answer

    def close(self) -> None:
        """Close it in any state."""
        self._socket.close()

    async def _send(self, request: Request) -> None:
        events: list[h11.Event] = [
            h11.Request(
                method=request.method, target=request.target, headers=list(request.headers)
            ),
            h11.EndOfMessage(),
        ]
        if request.body:
            events.insert(1, h11.Data(data=request.body))
        left = memoryview(b"".join(self._http.send(event) or b"" for event in events))
        while left:
            send = partial(self._socket.send, left)
            left = left[await _until_done(self._socket, send, trio.lowlevel.wait_writable) :]

    async def _receive(self, asked: str, limit: int) -> Answer:
        status, headers, body = 0, {}, bytearray()
        while not isinstance(event := self._http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                await trio.lowlevel.wait_readable(self._socket)
                read = partial(self._socket.recv, _READ_SIZE)
                received = await _until_done(self._socket, read, trio.lowlevel.wait_readable)
                if not received and self._http.their_state is h11.SEND_RESPONSE:
                    raise h11.RemoteProtocolError("it hung up without an answer")
                self._http.receive_data(received)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
                }
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > limit:
                    raise too_large(asked, body, limit)
        return Answer(status=status, headers=headers, body=bytes(body))


async def _connect(server: Server) -> socket.socket:
    if server.unix_socket is not None:
        stream = await trio.open_unix_socket(server.unix_socket)
    else:
        stream = await trio.open_tcp_stream(server.host, server.port)
        for option in KEEPALIVE:
            stream.setsockopt(*option)
    connected = socket.socket(fileno=stream.socket.detach())
    connected.setblocking(False)
    return connected


async def _until_done(
    opened: socket.socket,
    act: Callable[[], T],
    wait: Callable[[socket.socket], Awaitable[None]],
) -> T:
    """Let a socket act as soon as it need not block; TLS may have to read before it writes."""
    while True:
        try:
            return act()
        except ssl.SSLWantReadError:
            await trio.lowlevel.wait_readable(opened)
        except ssl.SSLWantWriteError:
            await trio.lowlevel.wait_writable(opened)
        except BlockingIOError:
            await wait(opened)
