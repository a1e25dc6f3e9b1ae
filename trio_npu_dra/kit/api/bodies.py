"""Bodies of requests and answers: whole or line by line, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
import httpcore
import httpx

from trio_npu_dra.kit.base.errors import Unreadable

OBJECT_LIMIT: Final = 2 << 20
"""Bytes of an answer about one object, or of one line of a watch; etcd takes up to 1.5 MiB."""
LIST_LIMIT: Final = 8 << 20
"""Bytes of a list; the driver lists objects of one node."""
BEGINNING: Final = 4096
"""Bytes of an answer that an error keeps when the whole cannot be read."""
BROKEN: Final = (httpx.HTTPError, httpcore.NetworkError, httpcore.ProtocolError)
"""Errors of a server that cannot be reached, hangs up, or does not speak HTTP."""
_CLOSE_LIMIT: Final = 1.0

Response: TypeAlias = httpx.Response | httpcore.Response


class Body(httpx.AsyncByteStream):
    """The body of one request, in one piece; nothing for one without a body.

    Those of httpx and httpcore are async generators: if a cancelled request leaves one half-way,
    the garbage collector closes it, perhaps after the event loop has ended.
    """

    def __init__(self, content: bytes) -> None:
        self._parts = iter((content,) if content else ())

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        for part in self._parts:
            return part
        raise StopAsyncIteration


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


async def read_whole(response: Response, asked: str, *, limit: int) -> bytes:
    """The whole body; after it the connection can serve another request.

    Raises:
        Unreadable: It is longer than *limit* bytes.
    """
    body = bytearray()
    chunks = chunks_of(response)
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            await abandon(response, chunks)
            raise Unreadable(
                f"{asked}: an answer of more than {limit} bytes", beginning=bytes(body[:BEGINNING])
            )
    await response.aclose()
    return bytes(body)


def chunks_of(response: Response) -> AsyncIterator[bytes]:
    """The body as it arrives."""
    assert isinstance(response.stream, AsyncIterable)
    return aiter(response.stream)


async def abandon(response: Response, chunks: AsyncIterator[bytes]) -> None:
    """End an answer that was not read to its end.

    The generators inside httpx and httpcore do not close one another; reading on from the closed
    connection makes each of them end with its error.
    """
    with anyio.move_on_after(_CLOSE_LIMIT, shield=True), suppress(*BROKEN):
        await response.aclose()
        async for _ in chunks:
            pass


async def close(connection: httpcore.AsyncHTTPConnection | httpx.AsyncHTTPTransport) -> None:
    """Close a connection in any state, in a second at most, even if this task is cancelled."""
    with anyio.move_on_after(_CLOSE_LIMIT, shield=True):
        await connection.aclose()
