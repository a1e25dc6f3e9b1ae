"""One connection to the API server, without a pool around it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpcore
import httpx

from trio_npu_dra.kit.api.bodies import Body, close, read_whole
from trio_npu_dra.kit.api.credentials import Credentials

IDLE_SECONDS: Final = 85.0
"""Seconds after which an idle connection is not used again; the API server closes it after 90."""
_KEEPALIVE: Final = (
    # A watch may be silent for minutes; these options find a silently dead peer in 30 s.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A whole answer; the names of *headers* are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Server:
    """The API server's address, taken apart once.

    Attributes:
        origin: Scheme, host and port.
        unix_socket: The socket to connect to instead.
        socket_options: For `socket.setsockopt`.
        headers: Those of every request; *user_agent* shows in the API server's audit log.
        extensions: httpcore's, with every request: the name in the server's certificate.
    """

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        url = httpx.URL(credentials.base_url)
        default_port = 443 if url.scheme == "https" else 80
        self.origin = httpcore.Origin(url.raw_scheme, url.raw_host, url.port or default_port)
        self.unix_socket = str(credentials.unix_socket) if credentials.unix_socket else None
        self.socket_options = None if self.unix_socket else _KEEPALIVE
        self.headers: Headers = (
            (b"host", url.netloc),
            (b"user-agent", user_agent.encode()),
        )
        name = credentials.server_name
        self.extensions = {"sni_hostname": name} if name else {}
        self._prefix = url.raw_path.rstrip(b"/")

    def request(
        self, method: str, path: str, *, headers: Headers, body: bytes | None
    ) -> httpcore.Request:
        """A request for *path*, which has the query too."""
        if body is not None:
            headers = (*headers, (b"content-length", b"%d" % len(body)))
        url = httpcore.URL(
            scheme=self.origin.scheme,
            host=self.origin.host,
            port=self.origin.port,
            target=self._prefix + path.encode(),
        )
        return httpcore.Request(
            method,
            url,
            headers=[*self.headers, *headers],
            content=Body(body or b""),
            extensions=self.extensions,
        )


class Connection:
    """Serves one request after the other; *tls* is None without TLS."""

    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        self.tls = tls
        self._http = httpcore.AsyncHTTPConnection(
            origin=server.origin,
            ssl_context=tls,
            keepalive_expiry=IDLE_SECONDS,
            uds=server.unix_socket,
            socket_options=server.socket_options,
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
