"""grpclib's and h2's parts of one connection, with limits."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import grpclib.config
import grpclib.protocol
import grpclib.server
import h2.config
import h2.events
import h2.settings
import trio
from grpclib.const import Status

from trio_npu_dra.kit.grpc import privates
from trio_npu_dra.kit.grpc.frame_budget import FrameBudget
from trio_npu_dra.kit.grpc.limits import Limits
from trio_npu_dra.kit.grpc.privates import FewStreamsH2, GrpcStream
from trio_npu_dra.kit.grpc.service import RpcError

TABLE_BYTES: Final = 4096
"""Size of the header table that we keep for a peer, HTTP/2's default; a peer may ask for 4 GiB."""

_Headers: TypeAlias = "list[tuple[str, str]]"
CONFIG = grpclib.config.Configuration()
H2_CONFIG = h2.config.H2Configuration(
    client_side=False,
    header_encoding="ascii",
    validate_inbound_headers=False,  # grpclib checks those that it reads
    validate_outbound_headers=False,
    normalize_inbound_headers=False,
    normalize_outbound_headers=False,
)
_HEADERS_READ = (":method", ":path", "content-type", "te")
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class ServerStream(grpclib.protocol.Stream):
    """A call, as far as HTTP/2 knows it.

    Attributes:
        connection: Its connection.
        deadline: Its end, on trio's clock; infinity if the caller gave none.
    """

    connection: PeerConnection
    deadline: float = math.inf


def stream_of(call: GrpcStream) -> ServerStream:
    """The stream of a call."""
    return cast("ServerStream", privates.stream_of(call))


def _limited(limits: Limits) -> FewStreamsH2:
    """Our side of HTTP/2; its windows are the default ones, 64 KiB a connection and a stream."""
    connection = FewStreamsH2(H2_CONFIG)
    connection.local_settings = h2.settings.Settings(
        client=False,
        initial_values={
            h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
            h2.settings.SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_bytes,
        },
    )
    connection.decoder.max_header_list_size = limits.header_bytes
    connection.initiate_connection()
    return connection


class PeerConnection(grpclib.protocol.Connection):
    """A connection and how its peer uses it.

    Attributes:
        h2: Its state, as h2 keeps it.
        budget: The frames that it may still send.
        since: When it was made.
        used: When it had its last call, or was made.
        greeted: Whether it speaks HTTP/2.
        has_request: Whether a whole request has come.
        calls: Unary calls that are answered now.
        watches: Streaming calls that are answered now.
    """

    def __init__(self, transport: asyncio.Transport, limits: Limits) -> None:
        self.h2 = _limited(limits)
        self._wire = transport
        super().__init__(self.h2, transport, config=CONFIG)
        self.budget = FrameBudget(limits)
        self.since = self.used = trio.current_time()
        self.greeted = self.has_request = False
        self.calls = self.watches = 0
        self._limits = limits
        self._unread: dict[object, float] = {}  # since when, the oldest first

    @property
    def blocked_since(self) -> float:
        """Since when the peer does not read what we send; infinity if it does."""
        return next(iter(self._unread.values()), math.inf)

    def create_stream(self, **arguments: Any) -> ServerStream:
        """A stream of our own kind, for grpclib."""
        return ServerStream(self, self.h2, self._wire, **arguments)

    def pause_writing(self) -> None:
        """The transport holds as much as it may."""
        super().pause_writing()
        self._unread[self] = trio.current_time()

    def resume_writing(self) -> None:
        """The peer has read most of it."""
        super().resume_writing()
        self._unread.pop(self, None)

    @contextmanager
    def answering(self, *, watch: bool) -> Iterator[None]:
        """Wrap a call whose request is complete.

        Raises:
            RpcError: The peer has too many watches.
        """
        self.has_request = True
        if watch and self.watches >= self._limits.watches:
            raise RpcError(
                Status.RESOURCE_EXHAUSTED,
                f"a connection may have {self._limits.watches} streaming calls at once",
            )
        self.watches += watch
        self.calls += not watch
        self.used = trio.current_time()
        try:
            yield
        finally:
            self.watches -= watch
            self.calls -= not watch
            self.used = trio.current_time()

    def replying(self) -> _Replying:
        """Wrap the wait until the peer reads a reply, or a part of one."""
        return _Replying(self._unread)

    def worth(self) -> tuple[int, int, float]:
        """The connection with the least worth is displaced first; the module says the order."""
        if self.calls or self.watches:
            return (3 if self.calls else 2, -self.calls, -self.since)
        return (int(self.has_request), 0, self.used)


class _Replying:
    """A reply that is not read yet, in the list of those of its connection while inside."""

    __slots__ = ("_unread",)

    def __init__(self, unread: dict[object, float]) -> None:
        self._unread = unread

    def __enter__(self) -> None:
        self._unread[self] = trio.current_time()

    def __exit__(self, *_: object) -> None:
        del self._unread[self]


class Events(grpclib.protocol.EventsProcessor):
    """Does what the peer's frames ask for."""

    connection: PeerConnection

    def process(self, event: h2.events.Event) -> None:
        """Ignore frames of unknown types (RFC 9113, 5.5); the budget has counted them."""
        if not isinstance(event, h2.events.UnknownFrameReceived):
            super().process(event)

    def process_remote_settings_changed(self, event: h2.events.RemoteSettingsChanged) -> None:
        """Note that the peer speaks HTTP/2, and limit the table of headers that it asks for."""
        link = self.connection
        link.greeted = True
        encoder = link.h2.encoder
        encoder.header_table_size = min(encoder.header_table_size, TABLE_BYTES)
        for code in event.changed_settings:
            if not isinstance(code, h2.settings.SettingCodes):
                del link.h2.remote_settings[code]
        super().process_remote_settings_changed(event)


class Handler(grpclib.server.Handler):
    """Begins calls.

    grpclib does not see deadlines, because trio keeps them. Nor does it see other headers, which
    it may be unable to read.
    """

    def accept(self, stream: Any, headers: Any, release_stream: Any) -> None:
        """Start the task of a call; once `close` has cancelled the others, it is cancelled too."""
        named = dict(headers)
        known: _Headers = [(name, named.get(name, "")) for name in _HEADERS_READ]
        timeout = named.get("grpc-timeout")
        if timeout is not None:
            match = _TIMEOUT.fullmatch(timeout)
            if match is None:
                known.append(("grpc-timeout", ""))  # refused by grpclib
            else:
                seconds = int(match[1]) * _SECONDS[match[2]]
                stream.deadline = trio.current_time() + seconds
        super().accept(stream, known, release_stream)
        task = privates.task_of(self, stream)
        task.add_done_callback(partial(self._ended, stream, release_stream))
        if self.closing:
            self.cancel(stream)

    def _ended(self, stream: Any, release_stream: Any, task: asyncio.Task[None]) -> None:
        """Forget a call; its task has done so, unless it was cancelled before it began.

        A cancelled call leaves a reference cycle: its error, the error's traceback, and there all
        that was read.
        """
        privates.forget_call(self, stream, task)
        if stream.wrapper is not None:
            privates.forget_error(stream.wrapper)
        with suppress(asyncio.CancelledError):
            task.exception()  # asyncio drops the error of a cancelled task once it was read
        with suppress(KeyError):
            release_stream()
