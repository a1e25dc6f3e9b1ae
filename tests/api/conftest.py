"""The stand-in API server on a unix socket, and a client of it; another one behind TLS."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import trio

from tests.api.pki import make_all
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.lab.standins.api_server import serve_api, serve_api_tls
from trio_npu_dra.lab.standins.api_state import ApiState

Serve: TypeAlias = Callable[[Callable[[trio.SocketStream], Awaitable[None]]], Awaitable[Path]]


@pytest.fixture
def serve(tmp_path: Path, nursery: trio.Nursery) -> Serve:
    """Serves connections by a function, and gives the path of the socket."""

    async def start(handle: Callable[[trio.SocketStream], Awaitable[None]]) -> Path:
        path = tmp_path / "raw.sock"
        socket = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        await socket.bind(str(path))
        socket.listen()
        nursery.start_soon(trio.serve_listeners, handle, [trio.SocketListener(socket)])
        return path

    return start


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the certificates of `pki.make_all`."""
    folder = tmp_path_factory.mktemp("pki")
    make_all(folder)
    return folder


@pytest.fixture
def state() -> ApiState:
    """The API server's objects."""
    return ApiState()


@pytest.fixture
async def credentials(state: ApiState, tmp_path: Path, nursery: trio.Nursery) -> Credentials:
    """How to reach the API server."""
    socket = tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    return Credentials(source="test", base_url="http://localhost", unix_socket=socket)


@pytest.fixture
async def client(credentials: Credentials) -> AsyncIterator[KubeClient]:
    """A client whose deadline is no test's: what waits for one sets its own."""
    async with open_client(credentials, deadline=30.0) as opened:
        yield opened


@pytest.fixture
def locked() -> ApiState:
    """An API server that needs a token and has one node."""
    locked = ApiState(token="secret")
    locked.add(Node(metadata=ObjectMeta(name="node-1")))
    return locked


@pytest.fixture
async def port(locked: ApiState, pki: Path, nursery: trio.Nursery) -> int:
    """The port of the locked server over TLS; it looks at client certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.load_verify_locations(pki / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    port: int = await nursery.start(serve_api_tls, locked, context)
    return port
