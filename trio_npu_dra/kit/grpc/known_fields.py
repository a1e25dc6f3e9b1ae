"""Reads a reply while it comes, without the fields that our .proto files leave out.

Those can be a hundred times as long as the rest, and tenants decide how long: the kubelet's list of
pods has all devices of a claim for each container that names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Final, TypeVar

from betterproto2 import Message, encode_varint
from grpclib.const import Status

from trio_npu_dra.kit.grpc.messages import parse
from trio_npu_dra.kit.grpc.service import RpcError

MessageT = TypeVar("MessageT", bound=Message)

Read = Callable[[int], Awaitable[bytes]]
"""Reads just so many bytes."""

_PIECE: Final = 32 << 10
_VARINT: Final = 0
_BYTES: Final = 2
_WIDTHS: Final = {1: 8, 5: 4}
"""Types on the wire; those of a fixed width with that."""
_VARINT_LIMIT: Final = 10  # bytes


async def read_known(read: Read, size: int, message_type: type[MessageT]) -> MessageT:
    """Read a reply.

    Args:
        read: Has it next.
        size: Its length in bytes.
        message_type: Its type.

    Raises:
        RpcError: It is no message of that type.
    """
    try:
        return parse(message_type, await _known(_Source(read, size), size, message_type))
    except ValueError as error:
        raise RpcError(Status.INTERNAL, f"the reply does not parse: {error}") from error


class _Source:
    """What is still to come of a message, read in pieces."""

    def __init__(self, read: Read, size: int) -> None:
        self.left = size
        self._read = read
        self._piece = b""
        self._at = 0

    async def take(self, size: int) -> bytes:
        """The next bytes."""
        found = bytearray()
        while len(found) < size:
            found += await self._some(size - len(found))
        return bytes(found)

    async def skip(self, size: int) -> None:
        """Drop the next bytes."""
        while size > 0:
            size -= len(await self._some(size))

    async def varint(self) -> int:
        """The next number."""
        if self._at < len(self._piece) and self.left and (byte := self._piece[self._at]) < 0x80:
            self._at += 1
            self.left -= 1
            return byte  # as most are
        value = 0
        for place in range(_VARINT_LIMIT):
            (byte,) = await self._some(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise ValueError("a number is too long")

    async def _some(self, most: int) -> bytes:
        if not self.left:
            raise ValueError("it ends within a field")
        if self._at == len(self._piece):
            self._piece, self._at = await self._read(min(_PIECE, self.left)), 0
        found = self._piece[self._at : self._at + most]
        self._at += len(found)
        self.left -= len(found)
        return found


@cache
def _fields_of(message_type: type[Message]) -> Mapping[int, type]:
    """What each field of a message is in Python, or its items are, by its number."""
    known = message_type._betterproto  # type: ignore[arg-type] # noqa: SLF001 - typed for itself
    return {number: known.cls_by_field[name] for number, name in known.field_name_by_number.items()}


async def _known(source: _Source, size: int, message_type: type[Message]) -> bytes:
    """The fields of a message that its type knows, and of those that are messages likewise."""
    kinds = _fields_of(message_type)
    found = bytearray()
    end = source.left - size
    while source.left > end:
        tag = await source.varint()
        number, on_wire = tag >> 3, tag & 7
        if on_wire == _BYTES:
            body = await _body(source, source.left - end, kinds.get(number))
        elif on_wire == _VARINT:
            body = encode_varint(await source.varint())
        elif on_wire in _WIDTHS:
            body = await source.take(_WIDTHS[on_wire])
        else:
            raise ValueError(f"type {on_wire} on the wire is not known")
        if number in kinds:
            found += encode_varint(tag) + body
    if source.left != end:
        raise ValueError("a field is longer than its message")
    return bytes(found)


async def _body(source: _Source, most: int, kind: type | None) -> bytes:
    """A field with a length; nothing of one that is not known.

    Args:
        source: Has it next.
        most: How much of its message is left.
        kind: What it is in Python.
    """
    size = await source.varint()
    if size > most:
        raise ValueError("a field is longer than its message")
    if kind is None:
        await source.skip(size)
        return b""
    body = await (_known(source, size, kind) if issubclass(kind, Message) else source.take(size))
    return encode_varint(len(body)) + body
