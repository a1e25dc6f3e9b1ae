"""The stand-in API server with this node, and a client of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.pool.reach import Reach
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState


@pytest.fixture
def state() -> ApiState:
    """What the API server stores: the node."""
    state = ApiState()
    state.add(Node(metadata=ObjectMeta(name="node-1")))
    return state


@pytest.fixture
async def client(
    state: ApiState, tmp_path: Path, nursery: trio.Nursery
) -> AsyncIterator[KubeClient]:
    """A client of the API server; its deadline is no test's."""
    socket = tmp_path / "api.sock"
    await nursery.start(serve_api, state, socket)
    credentials = Credentials(source="test", base_url="http://localhost", unix_socket=socket)
    async with open_client(credentials, deadline=30.0) as opened:
        yield opened


@pytest.fixture
def reach(state: ApiState) -> Reach:
    """The way to the API server, without a network."""
    return Reach(state)
