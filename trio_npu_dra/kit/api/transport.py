"""HTTP to the API server, with as few steps for a request as possible.

Requests go to single connections of httpcore, each of which serves one at a time; idle ones wait on
a list. httpx's pool, requests and answers around them cost two fifths as much again. `AT_ONCE`
requests run side by side, the rest waits for its turn, on connections that stay open.

A watch has a connection of its own, by httpx, so that watches and requests never wait for each
other. Cookies, redirects, proxies and compression are off: an API server needs none.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from math import inf
from typing import Any, Final

import anyio
import httpcore
import httpx

from trio_npu_dra.kit.api.answers import is_success, refusal
from trio_npu_dra.kit.api.bodies import (
    BROKEN,
    OBJECT_LIMIT,
    Body,
    Lines,
    abandon,
    chunks_of,
    close,
    read_whole,
)
from trio_npu_dra.kit.api.connection import Answer, Connection
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.base.errors import Unavailable

AT_ONCE: Final = 32
"""Requests under way at most. A kubelet prepares a few claims at a time, those of one pod."""
LINE_SECONDS: Final = 30.0
"""Seconds that one line of a watch may take from its first byte to its end."""
_IDLE_LIMIT: Final = 8
"""Idle connections that stay open as long as the API server keeps them."""
_SURPLUS_SECONDS: Final = 5.0
"""Seconds that further ones stay open for the rest of a burst."""
JSON: Final = b"application/json"
METADATA: Final = b"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""The form of a list with the metadata of each object alone."""
_APPLY: Final = b"application/apply-patch+yaml"  # JSON is YAML
_KEEPALIVE: Final = (
    # A watch may be silent for minutes; these options find a silently dead peer in 30 s.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_DISCONNECTED: Final = (httpcore.RemoteProtocolError, httpcore.ReadError, httpcore.WriteError)


class Transport:
    """Sends requests and reads answers; turns every failure into a `KubeError`.

    Args:
        credentials: Server and identity.
        deadline: Seconds that one request may take in all.
        user_agent: For the API server's audit log.
    """

    def __init__(self, credentials: Credentials, *, deadline: float, user_agent: str) -> None:
        self._credentials = credentials
        self._deadline = deadline
        url = httpx.URL(credentials.base_url)
        default_port = 443 if url.scheme == "https" else 80
        self._origin = httpcore.Origin(url.raw_scheme, url.raw_host, url.port or default_port)
        self._prefix = url.raw_path.rstrip(b"/")
        self._headers = ((b"host", url.netloc), (b"user-agent", user_agent.encode()))
        name = credentials.server_name
        self._extensions = {"sni_hostname": name} if name else {}
        unix_socket = str(credentials.unix_socket) if credentials.unix_socket else None
        options = None if unix_socket else _KEEPALIVE
        self._socket: dict[str, Any] = {"uds": unix_socket, "socket_options": options}
        self._slots = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._idle: list[tuple[float, Connection]] = []  # since when; that used last is at the end
        self._ended = False

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
        accept: bytes = JSON,
    ) -> bytes:
        """Send one request and return its whole answer.

        Args:
            asked: The request in words, for messages.
            method: The HTTP method.
            path: With the query.
            body: JSON; a PATCH applies it.
            limit: Bytes of the answer at most.
            accept: The form of the answer.

        Raises:
            KubeError: Refused, or not answered in time; the wait for its turn counts.
        """
        used = await self._log_in()
        request = partial(self._request, method, path, body, accept)
        answer = await self._ask_in_time(asked, request, limit)
        # Outside of the deadline: a credential plugin may wait for a person.
        if answer.status == 401 and await self._log_in(used) is not used:
            await self.close()
            answer = await self._ask_in_time(asked, request, limit)
        if not is_success(answer.status, answer.headers):
            raise refusal(asked, answer.status, answer.body, answer.headers)
        return answer.body

    async def stream(self, asked: str, path: str, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer, on a connection of its own.

        The first item is empty and says that the API server accepted the request. No cancel scope
        is open while the caller handles an item. After a 401 the caller opens the watch again.

        Raises:
            KubeError: Refused, broken, longer than *seconds* in all, or a line not whole in time.
        """
        await self._log_in()
        ends = anyio.current_time() + seconds
        transport = httpx.AsyncHTTPTransport(
            # The default context, which would not be used without TLS, costs 40 ms.
            verify=self._tls() or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=False,
            **self._socket,
        )
        try:
            response = await self._open(transport, asked, path)
            chunks = chunks_of(response)
            lines, spent = Lines(asked), 0.0  # seconds of waiting for the rest of a line
            try:
                yield b""
                while True:
                    began, left = anyio.current_time(), LINE_SECONDS - spent
                    limit = min(ends - began, left if lines.unfinished else inf)
                    if (chunk := await self._next(chunks, asked, limit)) is None:
                        break
                    spent += anyio.current_time() - began if lines.unfinished else 0.0
                    for line in lines.cut(chunk):
                        spent = 0.0
                        yield line
            finally:
                await abandon(response, chunks)
        finally:
            await close(transport)

    async def end(self) -> None:
        """Close all connections; one with a request under way closes when that ends."""
        self._ended = True
        await self.close()

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            await self._idle.pop()[1].close()

    async def _log_in(self, refused: Credentials | None = None) -> Credentials:
        """The credentials; a login replaces them if they have ended, or are *refused*."""
        if self._credentials.login is not None:
            self._credentials = await self._credentials.login.current(refused)
        return self._credentials

    async def _ask_in_time(
        self, asked: str, request: Callable[[], httpcore.Request], limit: int
    ) -> Answer:
        was_sent = False
        try:
            with anyio.fail_after(self._deadline):
                async with self._slots:
                    was_sent = True
                    answer, is_outdated = await self._exchange(asked, request(), limit)
                    if is_outdated:  # once, with the token or certificates that replaced these
                        await self.close()
                        answer, _ = await self._exchange(asked, request(), limit)
        except (TimeoutError, *BROKEN) as error:
            if not was_sent:
                raise Unavailable(
                    f"{asked}: not sent in {self._deadline:g} s, {AT_ONCE} requests are under way"
                ) from error
            await self.close()  # the other idle connections are probably broken too
            raise self._unreachable(asked, error) from error
        return answer

    async def _open(
        self, transport: httpx.AsyncHTTPTransport, asked: str, path: str
    ) -> httpx.Response:
        url = self._credentials.base_url + path
        headers = [*self._headers, (b"accept", JSON), *self._identity()]
        request = httpx.Request("GET", url, headers=headers, extensions=self._extensions)
        request.stream = Body(b"")
        try:
            with anyio.fail_after(self._deadline):
                response = await transport.handle_async_request(request)
                if is_success(response.status_code, response.headers):
                    return response
                body = await read_whole(response, asked, limit=OBJECT_LIMIT)
        except (TimeoutError, *BROKEN) as error:
            raise self._unreachable(asked, error) from error
        raise refusal(asked, response.status_code, body, response.headers)

    async def _next(self, chunks: AsyncIterator[bytes], asked: str, limit: float) -> bytes | None:
        try:
            with anyio.fail_after(limit):
                return await anext(chunks, None)
        except TimeoutError:
            raise Unavailable(f"{asked}: neither a whole event nor an end in time") from None
        except BROKEN as error:
            raise self._unreachable(asked, error) from error

    def _request(
        self, method: str, path: str, body: bytes | None, accept: bytes
    ) -> httpcore.Request:
        """A request with the present identity."""
        headers = [*self._headers, (b"accept", accept), *self._identity()]
        if body is not None:
            headers.append((b"content-type", _APPLY if method == "PATCH" else JSON))
            headers.append((b"content-length", b"%d" % len(body)))
        scheme, host, port = self._origin.scheme, self._origin.host, self._origin.port
        target = self._prefix + path.encode()
        return httpcore.Request(
            method,
            httpcore.URL(scheme=scheme, host=host, port=port, target=target),
            headers=headers,
            content=Body(body or b""),
            extensions=self._extensions,
        )

    async def _exchange(
        self, asked: str, request: httpcore.Request, limit: int
    ) -> tuple[Answer, bool]:
        """The answer, and whether it refuses an identity that was replaced meanwhile."""
        while self._idle:
            _, connection = self._idle.pop()  # the one that was used last
            if not connection.is_usable:
                await connection.close()
                continue
            try:
                return await self._send(connection, request, asked, limit)
            except _DISCONNECTED:
                if request.method != b"GET":  # a write may have reached the server
                    raise
            break
        connection = Connection(self._origin, self._tls(), **self._socket)
        return await self._send(connection, request, asked, limit)

    async def _send(
        self, connection: Connection, request: httpcore.Request, asked: str, limit: int
    ) -> tuple[Answer, bool]:
        answer = await connection.exchange(request, asked, limit=limit)
        is_outdated = answer.status == 401 and self._is_outdated(connection, request)
        if is_outdated or self._ended or not connection.is_open:
            await connection.close()
            return answer, is_outdated
        now = anyio.current_time()
        self._idle.append((now, connection))
        while len(self._idle) > _IDLE_LIMIT and self._idle[0][0] < now - _SURPLUS_SECONDS:
            await self._idle.pop(0)[1].close()
        return answer, False

    def _identity(self) -> tuple[tuple[bytes, bytes], ...]:
        """The client's identity as a header, if there is a token."""
        token = self._credentials.token
        return ((b"authorization", b"Bearer " + token.current().encode()),) if token else ()

    def _tls(self) -> ssl.SSLContext | None:
        return self._credentials.tls.current() if self._credentials.tls else None

    def _is_outdated(self, connection: Connection, request: httpcore.Request) -> bool:
        """Whether the files now have another identity than the request used."""
        if self._credentials.token is not None:
            self._credentials.token.reread()
        is_same = all(header in request.headers for header in self._identity())
        return not is_same or self._tls() is not connection.tls

    def _unreachable(self, asked: str, error: Exception) -> Unavailable:
        if isinstance(error, TimeoutError):
            return Unavailable(f"{asked}: no answer in {self._deadline:g} s")
        where = self._credentials.unix_socket or self._credentials.base_url
        return Unavailable(f"{asked}: no answer from {where}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The innermost message: the outer errors of a failed TLS handshake have none."""
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__  # httpcore clears the cause of its errors
    return words
