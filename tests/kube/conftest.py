"""The stand-in API server on a unix socket, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.kube.pki import make_all
from trio_npu_dra.kube.client import KubeClient, open_client
from trio_npu_dra.kube.credentials import Credentials
from trio_npu_dra.standins.api_server import serve_api
from trio_npu_dra.standins.api_state import ApiState


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
