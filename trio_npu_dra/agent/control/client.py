"""Asks the daemon of this node, over the control sockets of its instances."""

from __future__ import annotations

import http.client
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import ControlError, StorageError
from trio_npu_dra.kit.kubelet.endpoints import control_sockets

TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What one instance answered."""

    status: int
    text: str


def ask_all(plugin_directory: Path, method: str, target: str) -> list[Reply]:
    """Ask every instance that runs, the oldest first: during an update there are two.

    Returns:
        At least one reply.

    Raises:
        ControlError: No instance answers; the message says what to do.
    """
    try:
        found = control_sockets(plugin_directory)
    except StorageError as error:
        raise ControlError(f"{error}; only root can ask the daemon") from None
    if not found:
        raise ControlError(
            f"no daemon runs here: no control socket in {plugin_directory}; "
            "ask in its pod (kubectl exec), or give the daemon's directory and driver name"
        )
    replies, refusals = [], []
    for path in found:
        try:
            replies.append(_ask(path, method, target))
        except PermissionError:
            raise ControlError(f"no permission to ask at {path}: be root") from None
        except TimeoutError:
            refusals.append(f"{path}: no answer in {TIMEOUT_SECONDS:g} s; look at its log")
        except (OSError, http.client.HTTPException) as error:
            refusals.append(f"{path}: {error}; the daemon has ended or is being started")
    if not replies:
        raise ControlError("; ".join(refusals))
    return replies


def _ask(path: Path, method: str, target: str) -> Reply:
    with closing(_UnixConnection(path)) as connection:
        connection.request(method, target)
        answer = connection.getresponse()
        return Reply(status=answer.status, text=answer.read().decode())


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
