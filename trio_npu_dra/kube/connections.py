"""HTTP to the API server, as few steps as a request can take.

Each transport has one connection and serves one request at a time; idle ones wait on a list. That
halves the CPU of eight GETs at once against one pool of eight connections, whose bookkeeping grows
with each. No cookies, redirects, proxies or compression: an API server needs none.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Final

import anyio
import httpx

from trio_npu_dra.errors import Unavailable
from trio_npu_dra.kube.answers import refusal
from trio_npu_dra.kube.credentials import Credentials

BODY_LIMIT: Final = 8 << 20
"""Bytes of an answer, or of one watch event. etcd holds objects up to 1.5 MiB."""
_IDLE_LIMIT: Final = 8
_CLOSE_LIMIT: Final = 1.0
_LIMITS: Final = httpx.Limits(
    max_connections=1,
    max_keepalive_connections=1,
    keepalive_expiry=85.0,  # the API server closes an idle connection after 90 s
)
_KEEPALIVE: Final = (
    # A watch hears nothing for minutes; these find a silently dead peer in 30 s.
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_DISCONNECTED: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


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
        # Without TLS an empty context still saves the 40 ms that the default one costs.
        self._tls = credentials.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def ask(self, asked: str, method: str, path: str, body: bytes | None = None) -> bytes:
        """One request and its whole answer.

        A GET that dies with a kept-alive connection is sent again on a new one; nothing else is
        ever sent twice, except after a 401 with a token that has been replaced.

        Args:
            asked: The request in words, for messages.
            method: The HTTP method.
            path: Path and query.
            body: JSON.

        Raises:
            KubeError: Refused, or not answered in time.
        """
        try:
            with anyio.fail_after(self._deadline):
                response, answer = await self._exchange(method, path, body)
                if response.status_code == 401 and self._has_new_token():
                    response, answer = await self._exchange(method, path, body)
        except TimeoutError:
            raise Unavailable(f"{asked}: no answer in {self._deadline:g} s") from None
        except httpx.HTTPError as error:
            raise self._unreachable(asked, error) from error
        if response.status_code >= 300:
            header = response.headers.get("retry-after")
            raise refusal(asked, response.status_code, answer, retry_after=header)
        return answer

    async def stream(self, asked: str, path: str, *, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer, on a connection of its own.

        The first item is empty and says that the API server accepted the request. No cancel scope
        is open while an item is with the caller.

        Args:
            asked: The request in words, for messages.
            path: Path and query.
            silence: Seconds without a byte after which the connection counts as dead.

        Raises:
            KubeError: Refused, broken or silent.
        """
        transport = self._new_transport()
        try:
            response = await self._open(transport, asked, path)
            chunks = aiter(_stream_of(response))
            try:
                yield b""
                rest = b""
                while (chunk := await self._next(chunks, asked, silence)) is not None:
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > BODY_LIMIT:
                        raise Unavailable(f"{asked}: an event of more than {BODY_LIMIT} bytes")
                    for line in filter(None, lines):
                        yield line
            finally:
                await _abandon(response, chunks)
        finally:
            await _close(transport)

    async def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            await _close(self._idle.pop())

    async def _open(
        self, transport: httpx.AsyncHTTPTransport, asked: str, path: str
    ) -> httpx.Response:
        try:
            with anyio.fail_after(self._deadline):
                response = await transport.handle_async_request(self._request("GET", path, None))
                if response.status_code < 300:
                    return response
                body = await _read(response)
        except TimeoutError:
            raise Unavailable(f"{asked}: no answer in {self._deadline:g} s") from None
        except httpx.HTTPError as error:
            raise self._unreachable(asked, error) from error
        if response.status_code == 401:
            self._has_new_token()  # the caller's next try takes it
        header = response.headers.get("retry-after")
        raise refusal(asked, response.status_code, body, retry_after=header)

    async def _next(self, chunks: AsyncIterator[bytes], asked: str, silence: float) -> bytes | None:
        try:
            with anyio.fail_after(silence):
                return await anext(chunks, None)
        except TimeoutError:
            raise Unavailable(f"{asked}: silent for {silence:g} s") from None
        except httpx.HTTPError as error:
            raise self._unreachable(asked, error) from error

    async def _exchange(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[httpx.Response, bytes]:
        request = self._request(method, path, body)
        if self._idle:
            try:
                return await self._send(self._idle.pop(), request)
            except _DISCONNECTED:
                if method != "GET":
                    raise
        return await self._send(self._new_transport(), request)

    async def _send(
        self, transport: httpx.AsyncHTTPTransport, request: httpx.Request
    ) -> tuple[httpx.Response, bytes]:
        try:
            response = await transport.handle_async_request(request)
            body = await _read(response)
        except BaseException:
            # Also when cancelled: a connection in an unknown state is not used again.
            await _close(transport)
            raise
        if len(self._idle) < _IDLE_LIMIT:
            self._idle.append(transport)
        else:
            await _close(transport)
        return response, body

    def _request(self, method: str, path: str, body: bytes | None) -> httpx.Request:
        headers = dict(self._headers)
        if self._credentials.token is not None:
            headers["authorization"] = f"Bearer {self._credentials.token.current()}"
        if body is not None:
            headers["content-type"] = "application/json"
        return httpx.Request(
            method, self._credentials.base_url + path, headers=headers, content=body
        )

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        unix_socket = self._credentials.unix_socket
        return httpx.AsyncHTTPTransport(
            verify=self._tls,
            trust_env=False,
            limits=_LIMITS,
            uds=str(unix_socket) if unix_socket else None,
            socket_options=None if unix_socket else _KEEPALIVE,
        )

    def _has_new_token(self) -> bool:
        return self._credentials.token is not None and self._credentials.token.reread()

    def _unreachable(self, asked: str, error: httpx.HTTPError) -> Unavailable:
        where = self._credentials.unix_socket or self._credentials.base_url
        return Unavailable(f"{asked}: no answer from {where}: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The words nearest to the cause: the outer errors of a failed TLS handshake have none.

    httpcore clears `__cause__` of what it raises on, hence the context.
    """
    words = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        words = str(cause) or words
        cause = cause.__cause__ or cause.__context__
    return words


def _stream_of(response: httpx.Response) -> httpx.AsyncByteStream:
    assert isinstance(response.stream, httpx.AsyncByteStream)
    return response.stream


async def _read(response: httpx.Response) -> bytes:
    """The whole body, with the connection given back to its transport."""
    body = bytearray()
    chunks = aiter(_stream_of(response))
    async for chunk in chunks:
        body += chunk
        if len(body) > BODY_LIMIT:
            await _abandon(response, chunks)
            raise httpx.RemoteProtocolError(f"an answer of more than {BODY_LIMIT} bytes")
    await response.aclose()
    return bytes(body)


async def _abandon(response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
    """End an answer that was not read to its end.

    The generators inside httpx do not close one another; reading on from the closed connection
    makes each of them end with its error.
    """
    with anyio.move_on_after(_CLOSE_LIMIT, shield=True), suppress(httpx.HTTPError):
        await response.aclose()
        async for _ in chunks:
            pass


async def _close(transport: httpx.AsyncHTTPTransport) -> None:
    with anyio.move_on_after(_CLOSE_LIMIT, shield=True):
        await transport.aclose()
