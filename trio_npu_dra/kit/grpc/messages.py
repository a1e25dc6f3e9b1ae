"""Reads and writes messages.

A field of another type than declared is refused, which betterproto2 lets pass.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

from betterproto2 import Message
from grpclib.const import Status

from trio_npu_dra.kit.grpc.service import RpcError

PREFIX: Final = struct.Struct(">?I")
"""Before each message: whether it is compressed, and its length."""

MessageT = TypeVar("MessageT", bound=Message)


def parse(message_type: type[MessageT], body: bytes) -> MessageT:
    """Read a message.

    Raises:
        RpcError: It is no message of that type.
    """
    try:
        message = message_type.parse(body)
    except Exception as error:  # boundary: betterproto2 raises half a dozen types for bad bytes
        raise RpcError(Status.INTERNAL, f"the message does not parse: {error!r}") from error
    if flaw := _flaw(message):
        raise RpcError(Status.INTERNAL, f"the message does not parse: {flaw}")
    return message


def encode(message: Any, message_type: Any) -> bytes:
    """A message as it stands on the wire; raises TypeError if it is of another type."""
    if not isinstance(message, message_type):
        raise TypeError(f"{message_type.__name__} expected, {type(message).__name__} given")
    data: bytes = message.SerializeToString()
    return PREFIX.pack(False, len(data)) + data


def _flaw(message: Message) -> str:
    """The first field with a value of another type than declared; empty when there is none.

    betterproto2 does not compare the wire with the declaration: it returns a number, or nothing,
    where a text or a message should be.
    """
    for name, kinds in _kinds(type(message)).items():
        value = getattr(message, name)
        items = value.values() if isinstance(value, dict) else value
        for item in items if isinstance(value, list | dict) else [value]:
            if not isinstance(item, kinds):
                return f"{type(message).__name__}.{name} is of type {type(item).__name__}"
            if isinstance(item, Message) and (flaw := _flaw(item)):
                return flaw
    return ""


@cache
def _kinds(message_type: type[Message]) -> Mapping[str, tuple[type, ...]]:
    """The types of each field, or of its items; those of a map's keys count too."""
    hints = get_type_hints(message_type).items()
    return {name: get_args(hint) or (hint,) for name, hint in hints if not name.startswith("_")}
