"""Tokens and certificates that are replaced while the client runs, over real TLS."""

import errno
import logging
import os
import shutil
import ssl
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from tests.api.conftest import Serve
from tests.api.pki import kubeconfig
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import BearerToken, Credentials, in_cluster
from trio_npu_dra.kit.api.kubeconfig import driver_credentials
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.kit.api.tls import Material
from trio_npu_dra.kit.base.errors import Forbidden, Unavailable
from trio_npu_dra.lab.standins.api_server import serve_api_tls
from trio_npu_dra.lab.standins.api_state import ApiState

CLIENT_FILES = ("client.crt", "client.key")


@pytest.fixture
def state() -> ApiState:
    """An API server that has one node."""
    state = ApiState()
    state.add(Node(metadata=ObjectMeta(name="node-1")))
    return state


@pytest.fixture
def server(pki: Path) -> ssl.SSLContext:
    """Its TLS context, for new connections."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    return context


@pytest.fixture
async def port(state: ApiState, server: ssl.SSLContext, nursery: trio.Nursery) -> int:
    """Its port."""
    port: int = await nursery.start(serve_api_tls, state, server)
    return port


@pytest.fixture
def service_account(port: int, pki: Path, tmp_path: Path) -> Credentials:
    """A pod's credentials: `token` and `ca.crt` in *tmp_path*."""
    (tmp_path / "token").write_text("first\n")
    replace(pki / "ca.crt", tmp_path / "ca.crt")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    return in_cluster(environment, tmp_path)


def replace(source: Path, target: Path) -> None:
    """Replace *target* by a copy with a rename, as the kubelet does."""
    fresh = target.with_name("fresh")
    shutil.copyfile(source, fresh)
    fresh.rename(target)


def certified(port: int, pki: Path, folder: Path, *, name: str) -> Credentials:
    """A kubeconfig's credentials with `client.crt` and `client.key`, at first those of *name*."""
    for file in CLIENT_FILES:
        replace(pki / file.replace("client", name), folder / file)
    cluster: dict[str, object] = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(pki / "ca.crt"),
    }
    user: dict[str, object] = {"client-certificate": "client.crt", "client-key": "client.key"}
    return driver_credentials(kubeconfig(folder, cluster, user))


async def works(client: KubeClient) -> bool:
    """Whether the node can be read."""
    with trio.fail_after(HANG_SECONDS):
        return (await client.get(Node, "node-1")).metadata.name == "node-1"


def test_a_replaced_token_is_read(tmp_path: Path) -> None:
    """The next request has the new token; a file without one keeps the old."""
    file = tmp_path / "token"
    file.write_text("first\n")
    token = BearerToken(Material(field="token", path=file))
    file.write_text("second\n")
    assert token.current() == "second"
    file.write_text("")
    assert token.current() == "second"
    file.unlink()
    assert token.current() == "second"
    file.write_text("third")
    assert token.current() == "third"


async def test_a_replaced_ca_is_trusted(
    service_account: Credentials,
    state: ApiState,
    server: ssl.SSLContext,
    pki: Path,
    tmp_path: Path,
) -> None:
    """New connections and watches are verified with the new CA, and with it alone."""
    async with open_client(service_account) as client:
        assert await works(client)
        server.load_cert_chain(pki / "strange-server.crt", pki / "strange-server.key")
        state.fail_next(drop="before")
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await works(client)
        replace(pki / "stranger.crt", tmp_path / "ca.crt")
        assert await works(client)
        with trio.fail_after(HANG_SECONDS):
            async with client.watch(Node, resource_version="100") as events:
                assert (await anext(events)).object is not None
        server.load_cert_chain(pki / "server.crt", pki / "server.key")
        state.fail_next(drop="before")
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await works(client)


async def test_a_broken_ca_changes_nothing(
    service_account: Credentials,
    state: ApiState,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The old CA stays, and one line names the wrong file."""
    async with open_client(service_account) as client:
        (tmp_path / "ca.crt").write_text("-----BEGIN")
        assert await works(client)
        state.fail_next(drop="before")
        assert await works(client)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "CA is not a PEM certificate" in str(vars(record)["error"])


def no_file(*_: object) -> int:
    """Open none."""
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(("where", "name"), [(os, "memfd_create"), (Path, "read_bytes")])
async def test_a_ca_that_could_not_be_read_once_is_read_again(
    where: object,
    name: str,
    service_account: Credentials,
    server: ssl.SSLContext,
    pki: Path,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever needs it meanwhile fails as if the API server were away."""
    server.load_cert_chain(pki / "strange-server.crt", pki / "strange-server.key")
    replace(pki / "stranger.crt", tmp_path / "ca.crt")
    async with open_client(service_account) as client:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, no_file)
            with pytest.raises(Unavailable):
                await works(client)
            with pytest.raises(Unavailable):
                async with client.watch(Node, resource_version="100"):
                    pass
        assert await works(client)


async def test_a_replaced_client_certificate_is_shown(
    port: int, server: ssl.SSLContext, pki: Path, tmp_path: Path
) -> None:
    """New connections show the new certificate, but the old one until the new fits its key."""
    server.load_verify_locations(pki / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    credentials = certified(port, pki, tmp_path, name="strange-client")
    async with open_client(credentials) as client:
        for file in CLIENT_FILES:
            with pytest.raises(Unavailable):
                await works(client)
            replace(pki / file, tmp_path / file)
        assert await works(client)


async def test_a_401_is_asked_again_with_a_replaced_certificate(
    port: int, state: ApiState, pki: Path, tmp_path: Path
) -> None:
    """A kept connection whose certificate expired is replaced by a new one, once."""
    async with open_client(certified(port, pki, tmp_path, name="strange-client")) as client:
        assert await works(client)
        for file in CLIENT_FILES:
            replace(pki / file, tmp_path / file)
        state.fail_next(status=401)
        assert await works(client)
        assert state.asked("get") == 3
        state.fail_next(status=401)
        with pytest.raises(Forbidden):
            await works(client)
        assert state.asked("get") == 4


async def test_requests_on_their_way_survive_a_new_token(tmp_path: Path, serve: Serve) -> None:
    """Eight requests whose token expires are each sent again with the new one."""
    file = tmp_path / "token"
    file.write_text("old")
    head = "HTTP/1.1 {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}"

    async def answer(stream: trio.SocketStream) -> None:
        async with stream:
            if b"Bearer new" in await stream.receive_some():
                body = '{"metadata":{"name":"node-1"}}'
                await stream.send_all(head.format("200 OK", len(body), body).encode())
            else:
                file.write_text("new")
                await stream.send_all(head.format("401 Unauthorized", 2, "{}").encode())

    credentials = Credentials(
        source="test",
        base_url="http://localhost",
        unix_socket=await serve(answer),
        token=BearerToken(Material(field="token", path=file)),
    )
    async with open_client(credentials) as client, trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(works, client)
