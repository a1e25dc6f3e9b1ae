"""HTTP to the API server, with as few steps for a request as possible.

Each transport has one connection and serves one request at a time; idle ones wait on a list. That
halves the CPU of eight GETs at once against one pool of eight connections, whose bookkeeping grows
with each. `AT_ONCE` requests run side by side, others wait for their turn; so a burst opens no more
connections than that, and uses them again. A watch has a connection of its own, so that watches and
requests never wait for each other. Cookies, redirects, proxies and compression are off: an API
server needs none.

Two requests are sent twice, within their deadline (longer retries are up to the callers, see
`trio_npu_dra.kube`):

- a GET that fails with a kept-alive connection, once, on a new connection;
- a request answered with 401, once, if token or certificates were replaced by now (the caller of a
  watch opens it again, with the new ones). Where a credential plugin gave them, it is asked for
  others, outside of the deadline: it may wait for a person.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from math import inf
from typing import Final

import anyio
import httpx

from trio_npu_dra.errors import Unavailable
from trio_npu_dra.kube.answers import is_success, refusal
from trio_npu_dra.kube.bodies import (
    OBJECT_LIMIT,
    Body,
    Lines,
    abandon,
    close,
    read_whole,
    stream_of,
)
from trio_npu_dra.kube.credentials import Credentials

AT_ONCE: Final = 32
"""Requests under way at most. A kubelet asks for a few claims at a time, those of one pod."""
LINE_SECONDS: Final = 30.0
"""Seconds that one line of a watch may take from its first byte to its end."""
_IDLE_LIMIT: Final = 8
"""Idle connections that are kept for as long as the API server does."""
_SURPLUS_SECONDS: Final = 5.0
"""Seconds that further ones are kept for the rest of a burst."""
_LIMITS: Final = httpx.Limits(
    max_connections=1,
    max_keepalive_connections=1,
    keepalive_expiry=85.0,  # the API server closes an idle connection after 90 s
)
_KEEPALIVE: Final = (
    # A watch may be silent for minutes; these options find a silently dead peer in 30 s.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
_DISCONNECTED: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """One connection, and the certificates that it was opened with."""

    transport: httpx.AsyncHTTPTransport
    tls: ssl.SSLContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A whole answer; *outdated* if it refuses an identity that we have replaced."""

    status: int
    headers: httpx.Headers
    body: bytes
    outdated: bool


class Connections:
    """Sends requests and reads answers; turns every failure into a `KubeError`.

    Args:
        credentials: Server and identity.
        deadline: Seconds that one request may take in all.
        user_agent: What the API server's audit log shows.
    """

    def __init__(self, credentials: Credentials, *, deadline: float, user_agent: str) -> None:
        self._credentials = credentials
        self._deadline = deadline
        self._headers = {"accept": "application/json", "user-agent": user_agent}
        # Used without TLS: an empty context saves the 40 ms that the default one costs.
        self._no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._slots = anyio.Semaphore(AT_ONCE, fast_acquire=True)
        self._idle: list[tuple[float, _Connection]] = []  # since when; that used last is at the end
        self._ended = False

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
    ) -> bytes:
        """Send one request and return its whole answer.

        Args:
            asked: The request in words, for messages.
            method: The HTTP method.
            path: Path and query.
            body: JSON; of a PATCH it is applied.
            limit: Bytes of the answer at most.

        Raises:
            KubeError: Refused, or not answered in time; the wait for its turn counts.
        """
        used = await self._log_in()
        answer = await self._ask_in_time(asked, method, path, body, limit)
        if answer.status == 401 and await self._log_in(used) is not used:
            await self.close()
            answer = await self._ask_in_time(asked, method, path, body, limit)
        if not is_success(answer.status, answer.headers):
            raise refusal(asked, answer.status, answer.body, answer.headers)
        return answer.body

    async def stream(self, asked: str, path: str, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer, on a connection of its own.

        The first item is empty and says that the API server accepted the request. No cancel scope
        is open while the caller handles an item.

        Args:
            asked: The request in words, for messages.
            path: Path and query.
            seconds: How long the answer may take in all, whatever arrives.

        Raises:
            KubeError: Refused, broken, longer than *seconds*, or a line not whole in time.
        """
        await self._log_in()
        ends = anyio.current_time() + seconds
        connection = self._new_connection()
        try:
            response = await self._open(connection, asked, path)
            chunks = aiter(stream_of(response))
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
            await close(connection.transport)

    async def end(self) -> None:
        """Close all connections; one with a request under way closes when that ends."""
        self._ended = True
        await self.close()

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            await close(self._idle.pop()[1].transport)

    async def _log_in(self, refused: Credentials | None = None) -> Credentials:
        """Take other credentials if there is a login and these have ended, or are *refused*."""
        if self._credentials.login is not None:
            self._credentials = await self._credentials.login.current(refused)
        return self._credentials

    async def _ask_in_time(
        self, asked: str, method: str, path: str, body: bytes | None, limit: int
    ) -> _Answer:
        was_sent = False
        try:
            with anyio.fail_after(self._deadline):
                async with self._slots:
                    was_sent = True
                    answer = await self._exchange(asked, method, path, body, limit)
                    if answer.outdated:
                        await self.close()
                        answer = await self._exchange(asked, method, path, body, limit)
        except (TimeoutError, httpx.HTTPError) as error:
            if not was_sent:
                raise Unavailable(
                    f"{asked}: not sent in {self._deadline:g} s, {AT_ONCE} others are under way"
                ) from error
            await self.close()  # the other idle connections are probably broken too
            raise self._unreachable(asked, error) from error
        return answer

    async def _open(self, connection: _Connection, asked: str, path: str) -> httpx.Response:
        request = self._request("GET", path, None)
        try:
            with anyio.fail_after(self._deadline):
                response = await connection.transport.handle_async_request(request)
                if is_success(response.status_code, response.headers):
                    return response
                answer = await self._read(connection, request, response, asked, OBJECT_LIMIT)
        except (TimeoutError, httpx.HTTPError) as error:
            raise self._unreachable(asked, error) from error
        raise refusal(asked, answer.status, answer.body, answer.headers)

    async def _next(self, chunks: AsyncIterator[bytes], asked: str, limit: float) -> bytes | None:
        try:
            with anyio.fail_after(limit):
                return await anext(chunks, None)
        except TimeoutError:
            raise Unavailable(f"{asked}: neither a whole event nor an end in time") from None
        except httpx.HTTPError as error:
            raise self._unreachable(asked, error) from error

    async def _exchange(
        self, asked: str, method: str, path: str, body: bytes | None, limit: int
    ) -> _Answer:
        request = self._request(method, path, body)
        if self._idle:
            try:
                return await self._send(self._idle.pop()[1], request, asked, limit)
            except _DISCONNECTED:
                if method != "GET":
                    raise
        return await self._send(self._new_connection(), request, asked, limit)

    async def _send(
        self, connection: _Connection, request: httpx.Request, asked: str, limit: int
    ) -> _Answer:
        try:
            response = await connection.transport.handle_async_request(request)
            answer = await self._read(connection, request, response, asked, limit)
        except BaseException:
            # Also when cancelled: a connection in an unknown state is not used again.
            await close(connection.transport)
            raise
        if answer.outdated or self._ended:
            await close(connection.transport)
        else:
            await self._keep(connection)
        return answer

    async def _keep(self, connection: _Connection) -> None:
        """Keep a connection for the next request; close those that a burst no longer needs."""
        now = anyio.current_time()
        self._idle.append((now, connection))
        while len(self._idle) > _IDLE_LIMIT and self._idle[0][0] < now - _SURPLUS_SECONDS:
            await close(self._idle.pop(0)[1].transport)

    async def _read(
        self,
        connection: _Connection,
        request: httpx.Request,
        response: httpx.Response,
        asked: str,
        limit: int,
    ) -> _Answer:
        body = await read_whole(response, asked, limit=limit)
        return _Answer(
            status=response.status_code,
            headers=response.headers,
            body=body,
            outdated=response.status_code == 401 and self._is_outdated(connection, request),
        )

    def _request(self, method: str, path: str, body: bytes | None) -> httpx.Request:
        headers = dict(self._headers)
        if self._credentials.token is not None:
            headers["authorization"] = f"Bearer {self._credentials.token.current()}"
        if body is not None:
            headers["content-type"] = _APPLY if method == "PATCH" else "application/json"
        request = httpx.Request(
            method, self._credentials.base_url + path, headers=headers, content=body
        )
        request.stream = Body(body or b"")
        return request

    def _new_connection(self) -> _Connection:
        unix_socket = self._credentials.unix_socket
        tls = self._tls()
        transport = httpx.AsyncHTTPTransport(
            verify=tls,
            trust_env=False,
            limits=_LIMITS,
            uds=str(unix_socket) if unix_socket else None,
            socket_options=None if unix_socket else _KEEPALIVE,
        )
        return _Connection(transport=transport, tls=tls)

    def _tls(self) -> ssl.SSLContext:
        return self._credentials.tls.current() if self._credentials.tls else self._no_tls

    def _is_outdated(self, connection: _Connection, request: httpx.Request) -> bool:
        """Whether our files have another identity than the request used."""
        token = self._credentials.token
        if token is not None:
            token.reread()
            if request.headers["authorization"] != f"Bearer {token.current()}":
                return True
        return self._tls() is not connection.tls

    def _unreachable(self, asked: str, error: TimeoutError | httpx.HTTPError) -> Unavailable:
        if isinstance(error, TimeoutError):
            return Unavailable(f"{asked}: no answer in {self._deadline:g} s")
        where = self._credentials.unix_socket or self._credentials.base_url
        return Unavailable(f"{asked}: no answer from {where}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The innermost message: the outer errors of a failed TLS handshake have none.

    httpcore clears `__cause__` of the errors that it raises, hence the context.
    """
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__
    return words
