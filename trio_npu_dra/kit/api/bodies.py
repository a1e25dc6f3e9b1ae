"""Bodies of answers: whole or line by line, within limits."""

from typing import Final

from trio_npu_dra.kit.base.errors import Unreadable

OBJECT_LIMIT: Final = 2 << 20
"""Bytes of an answer about one object, or of one line of a watch; etcd takes up to 1.5 MiB."""
LIST_LIMIT: Final = 8 << 20
"""Bytes of a list; the driver lists objects of one node."""
BEGINNING: Final = 4096
"""Bytes of an answer that an error keeps when the whole cannot be read."""


class Lines:
    """Cuts chunks into lines."""

    def __init__(self, asked: str) -> None:
        self._asked = asked
        self._rest = bytearray()

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def cut(self, chunk: bytes) -> list[bytes]:
        """The lines that *chunk* completes, without empty ones.

        Raises:
            Unreadable: A line is longer than `OBJECT_LIMIT`.
        """
        self._rest += chunk
        lines: list[bytearray] = []
        if b"\n" in chunk:
            *lines, self._rest = self._rest.split(b"\n")
        if len(self._rest) > OBJECT_LIMIT:
            raise Unreadable(f"{self._asked}: an event of more than {OBJECT_LIMIT} bytes")
        return [bytes(line) for line in lines if line]


def too_large(asked: str, body: bytes | bytearray, limit: int) -> Unreadable:
    """The error for an answer of which *body* is more than *limit* bytes already."""
    words = f"{asked}: an answer of more than {limit} bytes"
    return Unreadable(words, beginning=bytes(body[:BEGINNING]))
