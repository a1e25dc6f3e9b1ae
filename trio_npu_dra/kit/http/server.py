"""The server: a cap of connections, and a deadline for each.

Anyone on the pod network may reach the port, so nothing here grows with what clients do. A new
client is always served: the address with the most connections loses one, first one without a
request, then the oldest. So a flood from one address does not displace the kubelet's probes.
"""

import logging
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import trio

from trio_npu_dra.kit.base import disk
from trio_npu_dra.kit.grpc import listen_tcp, listen_unix
from trio_npu_dra.kit.http.connection import answered, read_rest, receive_request, send_response
from trio_npu_dra.kit.http.handlers import Handler, HttpRequest

log = logging.getLogger(__name__)

_WARNING_SECONDS: Final = 60.0  # between two log lines about the same problem
_ACCEPT_PAUSE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of what all clients together cost.

    Attributes:
        connections: Open connections; one more displaces another.
        seconds: From accepting a connection to its end, the sending of the response included.
            Prometheus gives up after ten seconds by default.
    """

    connections: int = 64
    seconds: float = 10.0


async def serve_http(
    handler: Handler,
    *,
    port: int | None = None,
    socket: Path | None = None,
    limits: HttpLimits | None = None,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, on a TCP port of all addresses or on a unix socket.

    Args:
        handler: Responds to requests; `routed` makes one.
        port: 0 lets the system choose.
        socket: A path to which only root may connect; removed at the end.
        limits: Bounds of what clients cost.
        task_status: Gets the port (0 for a unix socket) when clients can connect.

    Raises:
        ConfigError: The port or the path cannot be used.
        StorageError: The file system refuses the socket.
    """
    listen = partial(listen_tcp, port or 0) if socket is None else partial(listen_unix, socket)
    listener = await disk.run(listen)
    bound = 0 if socket is not None else listener.socket.getsockname()[1]
    with listener.socket:
        try:
            log.info(
                "pages served", extra={"port": bound} if socket is None else {"socket": socket}
            )
            task_status.started(bound)
            accepting = trio.socket.from_stdlib_socket(listener.socket)
            await _Server(handler, limits or HttpLimits()).accept(accepting)
        finally:
            with trio.CancelScope(shield=True):
                await disk.run(listener.withdraw)


@dataclass(eq=False, slots=True)
class _Connection:
    """One client; its request is pending from the end of its head to the end of the response."""

    address: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_pending: bool = False


class _Server:
    """The open connections of one port."""

    def __init__(self, handler: Handler, limits: HttpLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._open: dict[_Connection, None] = {}  # oldest first
        self._warn_at: dict[str, float] = {}  # when the log may name a problem again

    async def accept(self, listener: trio.socket.SocketType) -> None:
        """Accept connections until cancelled, one each turn of the event loop."""
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    client, address = await listener.accept()
                except OSError as error:  # no descriptor left, or the client has gone already
                    self._warn("HTTP connections cannot be accepted", error=error.strerror)
                    await trio.sleep(_ACCEPT_PAUSE_SECONDS)
                    continue
                if len(self._open) >= self._limits.connections:
                    self._make_room()
                # A unix socket's clients have no address.
                connection = _Connection(address[0] if isinstance(address, tuple) else "")
                self._open[connection] = None
                nursery.start_soon(self._serve, connection, trio.SocketStream(client))

    async def _serve(self, connection: _Connection, client: trio.SocketStream) -> None:
        connection.scope.deadline = trio.current_time() + self._limits.seconds
        try:
            with connection.scope, suppress(trio.BrokenResourceError):  # the client has gone
                async with client:
                    request = await receive_request(client)
                    if request is None:
                        return
                    connection.is_pending = True
                    if isinstance(request, HttpRequest):
                        response = await answered(self._handler, request)
                        await send_response(client, response, with_body=request.method != "HEAD")
                    else:  # the response to a malformed one
                        await send_response(client, request, with_body=True)
                    connection.is_pending = False
                    await read_rest(client)
        finally:
            self._open.pop(connection, None)

    def _make_room(self) -> None:
        """Displace one connection, the first (oldest) of equal ones."""
        self._warn(
            "too many HTTP connections are open, some are closed", limit=self._limits.connections
        )
        counts = Counter(connection.address for connection in self._open)
        chosen = min(self._open, key=lambda client: (-counts[client.address], client.is_pending))
        del self._open[chosen]
        chosen.scope.cancel()

    def _warn(self, problem: str, **fields: object) -> None:
        """Log a problem of the port, at most once a minute."""
        now = trio.current_time()
        if now >= self._warn_at.get(problem, now):
            self._warn_at[problem] = now + _WARNING_SECONDS
            log.warning(problem, extra=fields)
