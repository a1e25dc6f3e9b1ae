"""A call, as its handler sees it: the public face of `grpclib.server.Stream`, on trio."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar

import h2.errors
import trio
from grpclib.const import Handler, Status
from grpclib.encoding.base import GRPC_CONTENT_TYPE
from grpclib.exceptions import ProtocolError
from grpclib.metadata import (
    Deadline,
    decode_metadata,
    decode_timeout,
    encode_grpc_message,
    encode_metadata,
)
from grpclib.stream import StreamIterator

from trio_npu_dra.kit.grpc.http2 import Connection, Inbound
from trio_npu_dra.kit.grpc.messages import encode
from trio_npu_dra.kit.grpc.service import RpcError

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

Metadata: TypeAlias = Mapping[str, str | bytes] | Collection[tuple[str, str | bytes]]
"""As grpclib takes it: a key that ends in `-bin` has bytes, any other a text."""

STATUS_TEXT_LIMIT: Final = 1024
"""Characters of an error's text: it travels in an HTTP/2 header."""

_SUBTYPE: Final = "proto"
_INITIAL: Final = [(":status", "200"), ("content-type", f"{GRPC_CONTENT_TYPE}+{_SUBTYPE}")]
_TIMEOUT: Final = re.compile(r"[0-9]{1,8}[HMSmun]")


@dataclass(frozen=True, slots=True, eq=False)
class Peer:
    """Who calls: the public face of `grpclib.protocol.Peer`."""

    address: Any

    def addr(self) -> Any:
        """Host and port; empty for a unix socket."""
        return self.address

    def cert(self) -> None:
        """None: there is no TLS."""


class Stream(StreamIterator[RequestT], Generic[RequestT, ReplyT]):
    """A call; iterating gives its requests.

    Args:
        connection: Its connection.
        number: Of its HTTP/2 stream.
        headers: Of its request.
        peer: Who calls.
        on_reply: Told of each message of a stream, and of the end, once they are sent.

    Attributes:
        peer: Who calls.
        scope: Around its handler.
        inbound: The requests, as bytes.
    """

    def __init__(
        self,
        connection: Connection,
        number: int,
        headers: list[tuple[bytes, bytes]],
        *,
        peer: Peer,
        on_reply: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.scope = trio.CancelScope()
        self.inbound = Inbound(connection, number)
        self._connection = connection
        self._number = number
        self._pairs = [(name.decode("ascii"), value.decode("ascii")) for name, value in headers]
        self._headers = dict(self._pairs)
        self._on_reply = on_reply
        self._has_headers = self._has_message = self._has_ended = False
        self._is_unwanted = False

    # --- for the server ---------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """`/<package>.<Service>/<Method>`."""
        return self._headers.get(":path", "")

    def flaw(self) -> tuple[int, str] | None:
        """Why this is no gRPC call: an HTTP status and a text; None if it is one."""
        kind, _, subtype = self._headers.get("content-type", "").partition("+")
        if self._headers.get(":method") != "POST":
            return 405, "a call is a POST"
        if kind != GRPC_CONTENT_TYPE or subtype not in {"", _SUBTYPE}:
            return 415, f"the content type must be {GRPC_CONTENT_TYPE}"
        if self._headers.get("te") != "trailers":
            return 400, 'there must be a header "te: trailers"'
        return None

    async def refuse(self, http_status: int, reason: str) -> None:
        """End what is no gRPC call, once the peer has taken what was sent before."""
        await self._connection.until_taken()
        self._has_ended = True
        headers = [(":status", str(http_status)), *_outcome(Status.UNKNOWN, reason)]
        self._connection.send_headers(self._number, headers, end=True)
        self._finish()

    def begin(
        self, handler: Handler, receive: Callable[[Stream[Any, Any]], Awaitable[Any]]
    ) -> None:
        """Say what the call is.

        Args:
            handler: Its handler.
            receive: Waits for one request, whole, and reads it.

        Raises:
            RpcError: Its deadline cannot be read.
        """
        self.handler = handler
        self._receive = receive
        self.ends_at = math.inf  # on trio's clock
        self.deadline: Deadline | None = None
        if (timeout := self._headers.get("grpc-timeout")) is not None:
            if not _TIMEOUT.fullmatch(timeout):
                raise RpcError(Status.UNKNOWN, "the header grpc-timeout is wrong")
            seconds = decode_timeout(timeout)
            self.ends_at = self.scope.deadline = trio.current_time() + seconds
            self.deadline = Deadline.from_timeout(seconds)

    async def receive_request(self) -> None:
        """Wait for the only request; raises RpcError if it is refused."""
        self._request: RequestT | None = await self._receive(self)

    @property
    def lacks_reply(self) -> bool:
        """Whether the handler has left a unary call without its reply."""
        streaming = self.handler.cardinality.server_streaming
        return not (streaming or self._has_message or self._has_ended)

    async def end(self, status: Status, text: str, metadata: Metadata = ()) -> None:
        """Send the trailers, unless the handler has, once the peer has taken what was sent before.

        So a peer that does not read has no more replies than it may have calls.

        Raises:
            StreamEnded: Nobody waits for them any more.
        """
        if self._has_ended:
            return
        await self._connection.until_taken()
        self._has_ended = True
        headers = [] if self._has_headers else [*_INITIAL]
        headers += _outcome(status, text)
        if metadata:
            headers += encode_metadata(metadata)
        self._connection.send_headers(self._number, headers, end=True)
        self._finish()

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed, and somebody may still wait for that answer."""
        return trio.current_time() >= self.ends_at and not self._is_unwanted

    def cancel_handler(self) -> None:
        """End the call at once: nobody waits for its answer."""
        self._is_unwanted = True
        self.scope.cancel()

    # --- the face of grpclib.server.Stream --------------------------------------------------------

    @cached_property
    def metadata(self) -> Any:
        """The caller's metadata, as a multidict; raises ValueError if it is not well-formed."""
        return decode_metadata(self._pairs)

    @property
    def user_agent(self) -> str | None:
        """What the caller calls itself."""
        return self._headers.get("user-agent")

    async def recv_message(self) -> RequestT | None:
        """The next request; None when there are no more.

        A handler of a single request has it at once: it does not run before that is whole.

        Raises:
            RpcError: The request is refused.
        """
        if self.handler.cardinality.client_streaming:
            return await self._receive(self) if await self.inbound.until_data() else None
        request, self._request = self._request, None
        return request

    async def send_initial_metadata(self, *, metadata: Metadata | None = None) -> None:
        """Send headers now; else the first message brings them.

        Raises:
            ProtocolError: They were sent already.
        """
        await self._check(wrong=self._has_headers)
        self._send_headers([*_INITIAL, *encode_metadata(metadata or ())])
        self._connection.flush()

    async def send_message(self, message: ReplyT) -> None:
        """Send a reply, as fast as the peer reads it.

        Raises:
            ProtocolError: A unary call has its reply already, or the handler has ended the call.
            StreamTerminatedError: The peer has ended the call, and a shield hides it.
        """
        streaming = self.handler.cardinality.server_streaming
        await self._check(wrong=self._has_message and not streaming)
        if not self._has_headers:
            self._send_headers(_INITIAL)
        self._has_message = True
        data = encode(message, self.handler.reply_type)
        await self._connection.send_data(self._number, data)
        self._connection.flush()
        if streaming:
            self._on_reply()

    async def send_trailing_metadata(
        self,
        *,
        status: Status = Status.OK,
        status_message: str | None = None,
        status_details: Any = None,  # noqa: ARG002 - grpclib has it; there is no codec for it
        metadata: Metadata | None = None,
    ) -> None:
        """End the call.

        Raises:
            ProtocolError: It has ended already, or would end well without its reply.
        """
        await self._check(wrong=status is Status.OK and self.lacks_reply)
        await self.end(status, status_message or "", metadata or ())

    async def cancel(self) -> None:
        """Reset the call, without trailers.

        Raises:
            ProtocolError: It has ended already.
        """
        await self._check()
        self._has_ended = True
        self._connection.reset(self._number, h2.errors.ErrorCodes.NO_ERROR)

    # ----------------------------------------------------------------------------------------------

    async def _check(self, *, wrong: bool = False) -> None:
        """Let nobody send who is cancelled, or who breaks gRPC's order."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if wrong or self._has_ended:
            raise ProtocolError(f"{self.path}: the handler sends what does not come next")

    def _send_headers(self, headers: list[tuple[str, str]]) -> None:
        self._connection.send_headers(self._number, headers, end=False)
        self._has_headers = True

    def _finish(self) -> None:
        if self.inbound.is_whole:
            self._connection.flush()
        else:  # the peer need not send the rest
            self._connection.reset(self._number, h2.errors.ErrorCodes.NO_ERROR)
        self._on_reply()


def _outcome(status: Status, text: str) -> list[tuple[str, str]]:
    headers = [("grpc-status", str(status.value))]
    if text:
        sendable = text[:STATUS_TEXT_LIMIT].encode(errors="replace").decode()
        headers.append(("grpc-message", encode_grpc_message(sendable)))
    return headers
