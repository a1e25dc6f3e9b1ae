"""gRPC methods, for servers and clients alike, and how they become grpclib services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from betterproto2 import Message
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError

from trio_npu_dra.kit.base.errors import DriverError

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)

Send: TypeAlias = Callable[[ReplyT], Awaitable[None]]
"""Hands one message of a stream to the peer; waits while the peer does not keep up."""


class Service(Protocol):
    """A service of grpclib: one that betterproto2 generates, or a `Route`."""

    def __mapping__(self) -> Mapping[str, Handler]:
        """The handler of each method, by `/<package>.<Service>/<Method>`."""


class RpcError(DriverError, GRPCError):
    """A call ended with a status other than OK; a handler raises it to answer with one.

    Args:
        status: The gRPC status.
        message: The text that we send to the other side, or got from it.
    """

    message: str

    def __init__(self, status: Status, message: str) -> None:
        GRPCError.__init__(self, status, message)

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"


@dataclass(frozen=True, slots=True)
class Route:
    """A grpclib service of one method."""

    path: str
    handler: Handler

    def __mapping__(self) -> Mapping[str, Handler]:
        """Its method."""
        return {self.path: self.handler}


@dataclass(frozen=True, slots=True)
class Method(Generic[RequestT, ReplyT]):
    """One request, and what comes of it.

    Attributes:
        path: `/<package>.<Service>/<Method>`, as it stands on the wire.
        request: Type of the request message.
        reply: Type of each reply message.
    """

    path: str
    request: type[RequestT]
    reply: type[ReplyT]


class UnaryMethod(Method[RequestT, ReplyT]):
    """One request, one reply."""

    __slots__ = ()

    def handled_by(self, handler: Callable[[RequestT], Awaitable[ReplyT]]) -> Route:
        """Bind a trio function to this method, for a server."""

        async def answer(stream: Any) -> None:
            await stream.send_message(await handler(await stream.recv_message()))

        return Route(self.path, Handler(answer, Cardinality.UNARY_UNARY, self.request, self.reply))


class StreamMethod(Method[RequestT, ReplyT]):
    """One request, any number of replies."""

    __slots__ = ()

    def handled_by(self, handler: Callable[[RequestT, Send[ReplyT]], Awaitable[None]]) -> Route:
        """Bind a trio function to this method, for a server; the stream ends when it returns."""

        async def answer(stream: Any) -> None:
            await handler(await stream.recv_message(), stream.send_message)

        return Route(self.path, Handler(answer, Cardinality.UNARY_STREAM, self.request, self.reply))
