"""A call, as its handler sees it: the public face of `grpclib.server.Stream`, on trio."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar

import trio
from betterproto2 import Message
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
from h2.errors import ErrorCodes

from trio_npu_dra.kit.grpc.http2 import Call, Connection, Headers
from trio_npu_dra.kit.grpc.messages import encode
from trio_npu_dra.kit.grpc.service import RpcError

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)

Metadata: TypeAlias = Mapping[str, str | bytes] | Collection[tuple[str, str | bytes]]
"""As grpclib takes it: a key that ends in `-bin` has bytes, any other a text."""

STATUS_TEXT_LIMIT: Final = 1024
"""Characters of an error's text: it travels in an HTTP/2 header."""

_INITIAL: Final = [(":status", "200"), ("content-type", f"{GRPC_CONTENT_TYPE}+proto")]


class Stream(Call, StreamIterator[RequestT], Generic[RequestT, ReplyT]):
    """A call; iterating gives its requests.

    Args:
        connection: Its connection.
        number: Of its HTTP/2 stream.
        headers: Of its request.
        message_bytes: Limit of a request.

    Attributes:
        scope: Around its handler.
        deadline: Of the caller; None if it has none.
    """

    handler: Handler

    def __init__(
        self,
        connection: Connection,
        number: int,
        headers: Headers,
        *,
        message_bytes: int,
    ) -> None:
        super().__init__(connection, number, message_bytes)
        self.headers.update(headers)
        self.scope = trio.CancelScope()
        self.deadline: Deadline | None = None
        self._pairs = headers
        self._request: RequestT | None = None
        self._has_headers = self._has_message = self._has_ended = False

    # --- for the server ---------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """`/<package>.<Service>/<Method>`."""
        return self.headers.get(":path", "")

    def begin(self, handler: Handler) -> None:
        """Say whose call it is; raises RpcError if its deadline cannot be read."""
        self.handler = handler
        if (timeout := self.headers.get("grpc-timeout")) is not None:
            try:
                seconds = float(decode_timeout(timeout))
            except (ValueError, OverflowError) as error:
                text = f"the header grpc-timeout is wrong: {timeout[:20]!r}"
                raise RpcError(Status.UNKNOWN, text) from error
            self.scope.deadline = trio.current_time() + seconds
            self.deadline = Deadline.from_timeout(seconds)

    async def receive_request(self) -> None:
        """Wait for the only request; raises RpcError if it is refused."""
        self._request = await self.message(self.handler.request_type)
        if self._request is None:
            raise RpcError(Status.INTERNAL, "the request has no message")

    def lose(self, reason: str) -> None:
        """End the call at once: nobody waits for its answer."""
        super().lose(reason)
        self.scope.cancel()

    @property
    def lacks_reply(self) -> bool:
        """Whether the handler has left a unary call without its reply."""
        streaming = self.handler.cardinality.server_streaming
        return not (streaming or self._has_message or self._has_ended)

    def finish(self, status: Status, text: str, metadata: Metadata = ()) -> None:
        """Send the trailers, unless the handler has.

        Raises:
            StreamEnded: Nobody waits for them any more.
        """
        if self._has_ended:
            return
        self._has_ended = True
        headers = [] if self._has_headers else [*_INITIAL]
        headers.append(("grpc-status", str(status.value)))
        if text:
            sendable = text[:STATUS_TEXT_LIMIT].encode(errors="replace").decode()
            headers.append(("grpc-message", encode_grpc_message(sendable)))
        self._connection.send_headers(self, [*headers, *encode_metadata(metadata)], end=True)
        self._connection.flush()

    # --- the face of grpclib.server.Stream --------------------------------------------------------

    @cached_property
    def metadata(self) -> Any:
        """The caller's metadata, as a multidict; raises ValueError if it is not well-formed."""
        return decode_metadata(self._pairs)

    async def recv_message(self) -> RequestT | None:
        """The next request; None when there are no more.

        A handler of a single request has it at once: it does not run before that is whole.

        Raises:
            RpcError: The request is refused.
        """
        if self.handler.cardinality.client_streaming:
            return await self.message(self.handler.request_type)
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
        await self._check(wrong=self._has_message and not self.handler.cardinality.server_streaming)
        if not self._has_headers:
            self._send_headers(_INITIAL)
        self._has_message = True
        await self._connection.send_data(self, encode(message, self.handler.reply_type))

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
        self.finish(status, status_message or "", metadata or ())

    async def cancel(self) -> None:
        """Reset the call, without trailers.

        Raises:
            ProtocolError: It has ended already.
        """
        await self._check()
        self._has_ended = True
        self._connection.reset(self, ErrorCodes.NO_ERROR)

    # ----------------------------------------------------------------------------------------------

    async def _check(self, *, wrong: bool = False) -> None:
        """Let nobody send who is cancelled, or who breaks gRPC's order."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if wrong or self._has_ended:
            raise ProtocolError(f"{self.path}: the handler sends what does not come next")

    def _send_headers(self, headers: Headers) -> None:
        self._connection.send_headers(self, headers, end=False)
        self._has_headers = True
