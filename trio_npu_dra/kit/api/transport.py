"""HTTP to the API server.

A request has a connection to itself until it is answered; idle connections wait on a list.
`AT_ONCE` requests run side by side, the rest waits for its turn, on connections that stay open.

A watch has a connection of its own, by httpx, so that watches and requests never wait for each
other. Cookies, redirects, proxies and compression are off: an API server needs none.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import Final
from urllib.parse import urlsplit

import h11
import trio

from trio_npu_dra.kit.api.answers import is_success, refusal
from trio_npu_dra.kit.api.bodies import OBJECT_LIMIT, Lines
from trio_npu_dra.kit.api.connection import Answer, Connection, Request, Server
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.streams import Stream
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
_BROKEN: Final = (OSError, h11.ProtocolError)
"""Errors of a server that cannot be reached, hangs up, or does not speak HTTP as h11 does."""
_APPLY: Final = b"application/apply-patch+yaml"  # JSON is YAML


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
        url = urlsplit(credentials.base_url)
        host = url.hostname or ""
        self._server = Server(
            host=host,
            port=url.port or (443 if url.scheme == "https" else 80),
            unix_socket=credentials.unix_socket,
        )
        self._prefix = url.path.encode()
        self._headers = ((b"host", url.netloc.encode()), (b"user-agent", user_agent.encode()))
        self._slots = trio.Semaphore(AT_ONCE)
        self._idle: list[Connection] = []  # that used last is at the end
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
            asked: The request as text, for messages.
            method: The HTTP method.
            path: With the query.
            body: JSON; a PATCH applies it.
            limit: Bytes of the answer at most.
            accept: The form of the answer.

        Raises:
            KubeError: Refused, or not answered in time; the wait for its turn counts.
        """
        request = partial(self._request, method, path, body, accept)
        answer = await self._ask_in_time(asked, request, limit)
        if not is_success(answer.status, answer.headers):
            raise refusal(asked, answer.status, answer.body, answer.headers)
        return answer.body

    async def stream(self, asked: str, path: str, *, seconds: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer, on a connection of its own.

        The first item is empty and says that the API server accepted the request. No cancel scope
        is open while the caller handles an item.

        Raises:
            KubeError: Refused, broken, longer than *seconds* in all, or a line not whole in time.
        """
        ends = trio.current_time() + seconds
        stream = await self._open(asked, path)
        try:
            yield b""
            lines, spent = Lines(asked), 0.0  # seconds of waiting for the rest of a line
            while True:
                began, left = trio.current_time(), LINE_SECONDS - spent
                limit = min(ends - began, left if lines.unfinished else inf)
                if (chunk := await self._next(stream, asked, limit)) is None:
                    break
                spent += trio.current_time() - began if lines.unfinished else 0.0
                for line in lines.cut(chunk):
                    spent = 0.0
                    yield line
        finally:
            await stream.close()

    def end(self) -> None:
        """Close all connections; one with a request under way closes when that ends."""
        self._ended = True
        self.close()

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    async def _ask_in_time(self, asked: str, request: Callable[[], Request], limit: int) -> Answer:
        was_sent = False
        try:
            with trio.fail_after(self._deadline):
                await self._slots.acquire()
                was_sent = True
                try:
                    answer, is_outdated = await self._exchange(asked, request(), limit)
                    if is_outdated:  # once, with the token or certificates that replaced these
                        self.close()
                        answer, _ = await self._exchange(asked, request(), limit)
                finally:
                    self._slots.release()
        except (trio.TooSlowError, *_BROKEN) as error:
            if not was_sent:
                raise Unavailable(
                    f"{asked}: not sent in {self._deadline:g} s, {AT_ONCE} requests are under way"
                ) from error
            self.close()  # the other idle connections are probably broken too
            raise self._unreachable(asked, error) from error
        return answer

    async def _open(self, asked: str, path: str) -> Stream:
        request = self._request("GET", path, None, JSON)
        async with AsyncExitStack() as on_failure:
            try:
                with trio.fail_after(self._deadline):
                    stream = Stream(self._server, self._tls())
                    on_failure.push_async_callback(stream.close)
                    status, headers = await stream.open(request)
                    if is_success(status, headers):
                        on_failure.pop_all()
                        return stream
                    body = await stream.whole(asked, limit=OBJECT_LIMIT)
            except (trio.TooSlowError, OSError) as error:
                raise self._unreachable(asked, error) from error
            raise refusal(asked, status, body, headers)

    async def _next(self, stream: Stream, asked: str, limit: float) -> bytes | None:
        try:
            with trio.fail_after(limit):
                return await stream.next()
        except trio.TooSlowError:
            raise Unavailable(f"{asked}: neither a whole event nor an end in time") from None
        except OSError as error:
            raise self._unreachable(asked, error) from error

    def _request(self, method: str, path: str, body: bytes | None, accept: bytes) -> Request:
        """A request with the present identity."""
        headers = [*self._headers, (b"accept", accept), *self._identity()]
        if body is not None:
            headers.append((b"content-type", _APPLY if method == "PATCH" else JSON))
            headers.append((b"content-length", b"%d" % len(body)))
        return Request(method, self._prefix + path.encode(), headers, body or b"")

    async def _exchange(self, asked: str, request: Request, limit: int) -> tuple[Answer, bool]:
        """The answer, and whether it refuses an identity that was replaced meanwhile."""
        while self._idle:
            connection = self._idle.pop()  # the one that was used last
            if not connection.is_usable:
                connection.close()
                continue
            try:
                return await self._send(connection, request, asked, limit)
            except _BROKEN:
                if request.method != "GET":  # a write may have reached the server
                    raise
            break
        connection = await Connection.open(self._server, self._tls())
        return await self._send(connection, request, asked, limit)

    async def _send(
        self, connection: Connection, request: Request, asked: str, limit: int
    ) -> tuple[Answer, bool]:
        answer = await connection.exchange(request, asked, limit=limit)
        is_outdated = answer.status == 401 and self._is_outdated(connection, request)
        if is_outdated or self._ended:
            connection.close()
        elif connection.is_open:
            self._idle.append(connection)
            surplus_since = connection.used_at - _SURPLUS_SECONDS
            while len(self._idle) > _IDLE_LIMIT and self._idle[0].used_at < surplus_since:
                self._idle.pop(0).close()
        return answer, is_outdated

    def _identity(self) -> tuple[tuple[bytes, bytes], ...]:
        """The client's identity as a header, if there is a token."""
        token = self._credentials.token
        return ((b"authorization", b"Bearer " + token.current().encode()),) if token else ()

    def _tls(self) -> ssl.SSLContext | None:
        return self._credentials.tls.current() if self._credentials.tls else None

    def _is_outdated(self, connection: Connection, request: Request) -> bool:
        """Whether the files now have another identity than the request used."""
        if self._credentials.token is not None:
            self._credentials.token.reread()
        is_same = all(header in request.headers for header in self._identity())
        return not is_same or self._tls() is not connection.tls

    def _unreachable(self, asked: str, error: Exception) -> Unavailable:
        where = self._credentials.unix_socket or self._credentials.base_url
        if isinstance(error, trio.TooSlowError):
            return Unavailable(f"{asked}: no answer from {where} in {self._deadline:g} s")
        return Unavailable(f"{asked}: no answer from {where}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The innermost message: the outer errors of a failed TLS handshake have none."""
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BaseExceptionGroup):  # of trio: one error for each address
            cause = cause.exceptions[-1]
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__  # httpx and httpcore clear the cause of theirs
    return words
