"""gRPC methods, for servers and clients alike, and how they get handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from betterproto2 import Message
from grpclib.const import Status

from trio_npu_dra.kit.base.errors import DriverError

RequestT = TypeVar("RequestT", bound=Message)
ReplyT = TypeVar("ReplyT", bound=Message)

Send: TypeAlias = Callable[[ReplyT], Awaitable[None]]
"""Hands one message of a stream to the peer; waits while the peer does not keep up."""


class RpcError(DriverError):
    """A call ended with a status other than OK; a handler raises it to answer with one.

    Args:
        status: The gRPC status.
        message: The text that we send to the other side, or got from it.
    """

    def __init__(self, status: Status, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"{status.name}: {message}")


@dataclass(frozen=True, slots=True)
class UnaryMethod(Generic[RequestT, ReplyT]):
    """One request, one reply.

    Attributes:
        path: `/<package>.<Service>/<Method>`, as it stands on the wire.
        request: Type of the request message.
        reply: Type of the reply message.
    """

    path: str
    request: type[RequestT]
    reply: type[ReplyT]

    def handled_by(self, handler: Callable[[RequestT], Awaitable[ReplyT]]) -> UnaryRoute:
        """Bind a trio function to this method, for a server."""
        return UnaryRoute(self, handler)


@dataclass(frozen=True, slots=True)
class StreamMethod(Generic[RequestT, ReplyT]):
    """One request, any number of replies.

    Attributes:
        path: `/<package>.<Service>/<Method>`, as it stands on the wire.
        request: Type of the request message.
        reply: Type of each reply message.
    """

    path: str
    request: type[RequestT]
    reply: type[ReplyT]

    def handled_by(
        self, handler: Callable[[RequestT, Send[ReplyT]], Awaitable[None]]
    ) -> StreamRoute:
        """Bind a trio function to this method, for a server; the stream ends when it returns."""
        return StreamRoute(self, handler)


@dataclass(frozen=True, slots=True)
class UnaryRoute:
    """A unary method with its handler."""

    method: UnaryMethod[Any, Any]
    handler: Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """A streaming method with its handler."""

    method: StreamMethod[Any, Any]
    handler: Callable[[Any, Send[Any]], Awaitable[None]]


Route: TypeAlias = UnaryRoute | StreamRoute
