"""HPACK (RFC 7541) for a server: the headers of calls hardly differ from call to call.

hpack calls a dozen functions for each header; here most headers take two, or none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import hpack

_INDEXED: Final = 0x80
"""Of a field that is an index in the tables of headers; the index follows, in seven bits."""

_LONGER: Final = 0xFF
"""An index that needs more bytes."""

_SIZE_UPDATE, _SIZE_UPDATE_MASK = 0x20, 0xE0

_ENTRY_BYTES: Final = 32
"""What a header counts for, beside its name and value (RFC 7541, 4.1)."""

_KEPT: Final = 64
"""Replies whose headers are kept encoded; one with an error text has a kilobyte."""


class Decoder(hpack.Decoder):
    """Decodes leading fields of one byte by itself: all of a call, or all but its timeout."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[hpack.HeaderTuple]:
        """The headers of a block; see hpack."""
        found: list[hpack.HeaderTuple] = []
        size = 0
        for byte in data:
            if not _INDEXED < byte < _LONGER:
                break
            name, value = self.header_table.get_by_index(byte - _INDEXED)
            found.append(hpack.HeaderTuple(name, value))
            size += _ENTRY_BYTES + len(name) + len(value)
        rest = data[len(found) :]
        is_update = bool(rest) and rest[0] & _SIZE_UPDATE_MASK == _SIZE_UPDATE
        if not raw or is_update or size > self.max_header_list_size:
            return super().decode(data, raw)  # which refuses it, makes texts, or resizes the table
        self.max_header_list_size -= size
        try:
            found += super().decode(rest, raw)
        finally:
            self.max_header_list_size += size
        return found


class ReplyEncoder(hpack.Encoder):
    """Encodes headers of replies without the peer's table, so that their bytes stay the same."""

    def encode(self, headers: Any, huffman: bool = True) -> bytes:  # noqa: ARG002 - as hpack has it
        """The block of headers; see hpack."""
        block = _encoded(tuple(headers))
        if self.header_table.resized:  # the peer has to read that first
            block = super().encode(()) + block
        return block


@lru_cache(_KEPT)
def _encoded(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    return hpack.Encoder().encode([hpack.NeverIndexedHeaderTuple(*pair) for pair in headers])
