"""HTTP for people and Prometheus: hypercorn on trio, on a TCP port or a unix socket.

What is served is a handful of short pages, so there is no framework: a table of paths and a
function for each.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import (
    ASGIFramework,
    ASGIReceiveCallable,
    ASGISendCallable,
    HTTPScope,
    Scope,
)

from trio_npu_dra.rpc import Listener, listen_tcp, listen_unix

log = logging.getLogger(__name__)

TEXT: Final = "text/plain; charset=utf-8"
_GRACE_SECONDS: Final = 1.0
_RESTART_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked; bodies are not read.

    Attributes:
        path: Without the query.
        query: What follows the `?`, still encoded.
        accept: The media types that the client wants.
    """

    path: str
    query: str = ""
    accept: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is answered."""

    body: str | bytes
    status: int = 200
    content_type: str = TEXT


App: TypeAlias = ASGIFramework
Handler: TypeAlias = Callable[[Request], Awaitable[Answer]]


def app(routes: Mapping[tuple[str, str], Handler]) -> App:
    """An ASGI application.

    Args:
        routes: A handler for each method and path, such as `("GET", "/healthz")`. HEAD is GET
            without the body.
    """
    paths = {path for _, path in routes}

    async def answer(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _send(send, await respond(scope))

    async def respond(scope: HTTPScope) -> Answer:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        handler = routes.get((method, scope["path"]))
        if handler is None:
            known = scope["path"] in paths
            return Answer(status=405 if known else 404, body="no such page\n")
        headers = dict(scope["headers"])
        return await handler(
            Request(
                path=scope["path"],
                query=scope["query_string"].decode("latin-1"),
                accept=headers.get(b"accept", b"").decode("latin-1"),
            )
        )

    return answer


async def serve_http(
    app: App,
    *,
    port: int | None = None,
    socket: Path | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *app* until cancelled, on a TCP port of all addresses or on a unix socket.

    Args:
        app: What answers.
        port: 0 lets the system choose.
        socket: A path that root alone may connect to; removed at the end.
        task_status: Told the port (0 for a unix socket) when clients can connect.

    Raises:
        ConfigError: The port or the path cannot be had.
        StorageError: The file system refuses the socket.
    """
    listener = listen_unix(socket) if socket is not None else listen_tcp(port or 0)
    bound = 0 if socket is not None else listener.socket.getsockname()[1]
    with listener.socket:
        try:
            log.info(
                "pages served", extra={"port": bound} if socket is None else {"socket": socket}
            )
            task_status.started(bound)
            while True:
                await _serve_once(app, listener)
                await trio.sleep(_RESTART_SECONDS)
        finally:
            listener.withdraw()


async def _serve_once(app: App, listener: Listener) -> None:
    config = Config()
    config.bind = [f"fd://{os.dup(listener.socket.fileno())}"]  # hypercorn closes it
    config.errorlog = logging.getLogger("hypercorn")
    config.accesslog = None
    config.include_server_header = False
    config.graceful_timeout = _GRACE_SECONDS
    try:
        await serve(app, config)
    except Exception:  # boundary: what a peer sends must not end the daemon through the server
        log.exception("HTTP server failed and is started anew")


async def _live(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """The application has nothing to start and to stop, but must say so."""
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _send(send: ASGISendCallable, answer: Answer) -> None:
    body = answer.body.encode() if isinstance(answer.body, str) else answer.body
    await send(
        {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [
                (b"content-type", answer.content_type.encode()),
                (b"content-length", str(len(body)).encode()),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})
