"""An endless answer, such as a watch, on a connection of its own, by httpx."""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Self

import httpx
import trio

from trio_npu_dra.kit.api.bodies import too_large
from trio_npu_dra.kit.api.connection import KEEPALIVE, Request, Server

_CLOSE_LIMIT: Final = 1.0


class _NoBody(httpx.AsyncByteStream):
    """The body of a request that has none.

    That of httpx is an async generator: if a cancelled request leaves it half-way, the garbage
    collector closes it, perhaps after the event loop has ended.
    """

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration


class Stream:
    """One request, and its answer as it comes.

    Args:
        server: The API server.
        tls: None without TLS.
    """

    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        path = server.unix_socket
        self._server = server
        self._scheme = "http" if tls is None else "https"
        self._transport = httpx.AsyncHTTPTransport(
            # The default context, which would not be used without TLS, costs 40 ms.
            verify=tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            uds=str(path) if path else None,
            socket_options=None if path else KEEPALIVE,
        )
        self._response: httpx.Response | None = None
        self._body: AsyncIterator[bytes] = _NoBody()

    async def open(self, request: Request) -> tuple[int, Mapping[str, str]]:
        """Send a request without a body; the status and the headers of its answer.

        Raises:
            OSError: The server cannot be reached, or does not speak HTTP.
        """
        server = self._server
        with _as_os_error():
            asked = httpx.Request(
                request.method,
                httpx.URL(
                    scheme=self._scheme, host=server.host, port=server.port, raw_path=request.target
                ),
                headers=request.headers,
            )
            asked.stream = _NoBody()
            response = await self._transport.handle_async_request(asked)
        assert isinstance(response.stream, AsyncIterable)
        self._response, self._body = response, aiter(response.stream)
        return response.status_code, response.headers

    async def next(self) -> bytes | None:
        """What came next of the body; None at its end.

        Raises:
            OSError: The connection broke.
        """
        with _as_os_error():
            return await anext(self._body, None)

    async def whole(self, asked: str, *, limit: int) -> bytes:
        """The whole body.

        Raises:
            Unreadable: It is longer than *limit* bytes.
            OSError: The connection broke.
        """
        body = bytearray()
        while (chunk := await self.next()) is not None:
            body += chunk
            if len(body) > limit:
                raise too_large(asked, body, limit)
        return bytes(body)

    async def close(self) -> None:
        """Close it in any state, in a second at most, even if this task is cancelled."""
        with trio.move_on_after(_CLOSE_LIMIT, shield=True):
            if self._response is not None:
                with suppress(httpx.HTTPError):
                    await self._response.aclose()
                    # The generators inside httpx do not close one another; reading on from the
                    # closed connection makes each of them end with its error.
                    async for _ in self._body:
                        pass
            await self._transport.aclose()


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(str(error)) from error
