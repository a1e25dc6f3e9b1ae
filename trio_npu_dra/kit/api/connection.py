"""One connection to the API server, without a pool around it."""

import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import httpcore

from trio_npu_dra.kit.api.bodies import close, read_whole

IDLE_SECONDS: Final = 85.0
"""Seconds after which an idle connection is not used again; the API server closes it after 90."""


class Answer(NamedTuple):
    """A whole answer; the names of *headers* are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """Serves one request after the other.

    Args:
        origin: Scheme, host and port.
        tls: None without TLS.
        socket: Arguments of httpcore: a unix socket, and options of a TCP socket.
    """

    def __init__(self, origin: httpcore.Origin, tls: ssl.SSLContext | None, **socket: Any) -> None:
        self.tls = tls
        self._http = httpcore.AsyncHTTPConnection(
            origin=origin, ssl_context=tls, keepalive_expiry=IDLE_SECONDS, **socket
        )

    @property
    def is_open(self) -> bool:
        """Whether the last answer left it open for another request."""
        return self._http.is_available()

    @property
    def is_usable(self) -> bool:
        """Whether it is still open, and has not idled for too long."""
        return self.is_open and not self._http.has_expired()

    async def exchange(self, request: httpcore.Request, asked: str, *, limit: int) -> Answer:
        """Send a request and read its whole answer; if that does not succeed, close.

        Raises:
            Unreadable: The answer has more than *limit* bytes.
            httpcore.NetworkError: The server cannot be reached, or the connection broke.
            httpcore.ProtocolError: The answer is not HTTP, or ended too early.
        """
        try:
            response = await self._http.handle_async_request(request)
            body = await read_whole(response, asked, limit=limit)
        except BaseException:
            # Also when cancelled: a connection in an unknown state is not used again.
            await self.close()
            raise
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        return Answer(status=response.status, headers=headers, body=body)

    async def close(self) -> None:
        """Close it in any state."""
        await close(self._http)
