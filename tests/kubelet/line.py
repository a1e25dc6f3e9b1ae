"""A line between a kubelet and a plugin that counts connections and can be cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import trio

CHUNK = 1 << 16


@dataclass
class Line:
    """A unix socket that passes everything on to another one.

    Attributes:
        path: The socket that it listens on.
        target: The socket behind it.
        accepted: How many connections there were.
    """

    path: Path
    target: Path
    accepted: int = 0
    _open: set[trio.CancelScope] = field(default_factory=set)

    async def serve(
        self,
        *,
        task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Pass bytes on until cancelled; started once a peer can connect."""
        listening = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        await listening.bind(str(self.path))
        listening.listen()
        await trio.serve_listeners(
            self._pass_on, [trio.SocketListener(listening)], task_status=task_status
        )

    def cut(self) -> None:
        """Cut all connections, without notice to either side."""
        for scope in self._open:
            scope.cancel()

    async def _pass_on(self, near: trio.SocketStream) -> None:
        self.accepted += 1
        with trio.CancelScope() as scope:
            self._open.add(scope)
            async with (
                near,
                await trio.open_unix_socket(self.target) as far,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(_pump, near, far, scope)
                nursery.start_soon(_pump, far, near, scope)
        self._open.discard(scope)


async def _pump(source: trio.SocketStream, sink: trio.SocketStream, end: trio.CancelScope) -> None:
    try:
        while data := await source.receive_some(CHUNK):
            await sink.send_all(data)
    except trio.BrokenResourceError:
        pass  # one side has hung up meanwhile
    end.cancel()
