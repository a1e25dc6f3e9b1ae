"""The private parts of grpclib and betterproto2, and the undocumented ones of h2, that we use.

All are here, and `tests/grpc/test_privates.py` fails when an upgrade moves one. Of asyncio we use
nothing private.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import grpclib.client
import grpclib.protocol
import grpclib.server
import h2.connection
from betterproto2 import Message
from grpclib.events import _DispatchServerEvents as DispatchServerEvents
from grpclib.utils import Wrapper

__all__ = [
    "CLOSED_CONNECTION",
    "DispatchServerEvents",
    "FewStreamsH2",
    "GrpcStream",
    "fields_of",
    "forget_call",
    "forget_error",
    "reply_of",
    "stream_of",
    "task_of",
]

GrpcStream: TypeAlias = "grpclib.server.Stream[Any, Any]"

CLOSED_CONNECTION: Final = "_transport"
"""The attribute that a `grpclib.protocol.Connection` loses when it is closed; a client's call that
comes too late then fails with an AttributeError of this name."""


class FewStreamsH2(h2.connection.H2Connection):
    """Remembers 1,000 streams that have ended; h2 remembers 65,536, each with its own entry."""

    MAX_CLOSED_STREAMS = 1000


@cache
def fields_of(message_type: type[Message]) -> Mapping[int, type]:
    """What each field of a message is in Python, or its items are, by its number."""
    known = message_type._betterproto  # type: ignore[arg-type] # noqa: SLF001 - typed for itself
    return {number: known.cls_by_field[name] for number, name in known.field_name_by_number.items()}


def reply_of(call: grpclib.client.Stream[Any, Any]) -> tuple[grpclib.protocol.Stream, Wrapper]:
    """The HTTP/2 stream of a call to a server; and what ends reading from it, with the reason."""
    return call._stream, call._wrapper  # noqa: SLF001


def stream_of(call: GrpcStream) -> grpclib.protocol.Stream:
    """The HTTP/2 stream of a call."""
    return call._stream  # noqa: SLF001


def task_of(handler: grpclib.server.Handler, stream: grpclib.protocol.Stream) -> asyncio.Task[None]:
    """The task of a call that *handler* has just accepted."""
    return handler._tasks[stream]  # noqa: SLF001


def forget_call(
    handler: grpclib.server.Handler, stream: grpclib.protocol.Stream, task: asyncio.Task[None]
) -> None:
    """Forget a call that has ended; grpclib does so after every ten calls."""
    handler._tasks.pop(stream, None)  # noqa: SLF001
    handler._cancelled.discard(task)  # noqa: SLF001


def forget_error(wrapper: Wrapper) -> None:
    """Forget why a call was cancelled: this error keeps alive all that was read."""
    wrapper._error = None  # noqa: SLF001
