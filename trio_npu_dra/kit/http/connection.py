"""HTTP with one client: one request, one answer, then the connection ends.

Without keep-alive there is no pipelining to limit and no idle connection to keep; and a client that
asks as fast as it can gets only the turns of the event loop that the accept loop gives it.
"""

from __future__ import annotations

import logging
from typing import Final

import h11
import trio

from trio_npu_dra.kit.http.handlers import Handler, HttpRequest, HttpResponse

log = logging.getLogger(__name__)

HEAD_LIMIT: Final = 16 << 10
"""Bytes of a request's line and headers; Prometheus sends half a kilobyte."""

_CHUNK: Final = 4096
_PAUSE_SECONDS: Final = 0.05  # between two reads of a head, which mostly comes in one piece
_VERSIONS: Final = (b"1.0", b"1.1")
_UNREAD_CHUNK: Final = 1 << 16
_UNREAD_LIMIT: Final = 1 << 20  # bytes of a body, read so that its sender sees the response
_UNREAD_SECONDS: Final = 1.0


async def receive_request(
    client: trio.abc.HalfCloseableStream,
) -> HttpRequest | HttpResponse | None:
    """Read the head of one request.

    Returns:
        The request, or the response to a malformed one; None if the client left.

    Raises:
        trio.BrokenResourceError: The client reset the connection.
    """
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
    try:
        parser.receive_data(bytes(await client.receive_some(_CHUNK)))
        while (event := parser.next_event()) is h11.NEED_DATA:
            # Headers that trickle in from many clients must not keep the loop busy.
            await trio.sleep(_PAUSE_SECONDS)
            parser.receive_data(bytes(await client.receive_some(_CHUNK)))
    except h11.RemoteProtocolError as error:
        return HttpResponse(status=error.error_status_hint, body=f"not an HTTP request: {error}\n")
    if not isinstance(event, h11.Request):
        return None
    if event.http_version not in _VERSIONS:
        return HttpResponse(status=505, body="this port speaks HTTP/1.1\n")
    path, _, query = event.target.decode("ascii").partition("?")
    accept = b",".join(value for name, value in event.headers if name == b"accept")
    return HttpRequest(
        method=event.method.decode("ascii"), path=path, query=query, accept=accept.decode("latin-1")
    )


async def answered(handler: Handler, request: HttpRequest) -> HttpResponse:
    """The handler's response; a bug in a page fails that response, not the daemon."""
    try:
        return await handler(request)
    except Exception:  # boundary: a broken page must not stop claims
        log.exception("page failed", extra={"path": request.path})
        return HttpResponse(status=500, body="bug in the driver: see its log\n")


async def send_response(
    client: trio.abc.HalfCloseableStream, response: HttpResponse, *, with_body: bool
) -> None:
    """Send *response* and end the server's side of the connection.

    Raises:
        trio.BrokenResourceError: The client reset the connection.
    """
    body = response.body.encode() if isinstance(response.body, str) else response.body
    headers = [
        ("content-type", response.content_type),
        ("content-length", str(len(body))),
        ("connection", "close"),
    ]
    if response.allow:
        headers.append(("allow", response.allow))
    head = h11.Connection(h11.SERVER).send(
        h11.Response(status_code=response.status, headers=headers)
    )
    assert head is not None
    await client.send_all(head)
    if with_body:  # not through h11, which would copy a body that many clients share
        await client.send_all(body)
    await client.send_eof()


async def read_rest(client: trio.abc.HalfCloseableStream) -> None:
    """Read the rest of a request, within limits, until the client closes the connection.

    The kernel resets a connection that is closed with unread bytes, and a client that is still
    sending a body may then lose the answer.

    Raises:
        trio.BrokenResourceError: The client reset the connection.
    """
    left = _UNREAD_LIMIT
    with trio.move_on_after(_UNREAD_SECONDS):
        while left > 0 and (data := await client.receive_some(_UNREAD_CHUNK)):
            left -= len(data)
