"""Whom a person's client trusts, over real TLS; `test_credentials` has the agent's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from tests.api.pki import NAME, kubeconfig
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.kubeconfig import read_context
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.base.errors import ConfigError, Unavailable
from trio_npu_dra.lab.standins.api_server import serve_api_tls
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.tools.login.login import log_in

Cluster = dict[str, object]
UNTRUSTED = "certificate verify failed"


class Servers:
    """The API server behind several certificates.

    Attributes:
        asked_for: The names that clients asked for in their greetings.
    """

    def __init__(self, state: ApiState, pki: Path, nursery: trio.Nursery) -> None:
        self.asked_for: list[str | None] = []
        self._state, self._pki, self._nursery = state, pki, nursery

    async def start(self, name: str) -> str:
        """The address of one with a certificate of `pki`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pki / f"{name}.crt", self._pki / f"{name}.key")
        context.sni_callback = lambda _, name, __: self.asked_for.append(name)
        port: int = await self._nursery.start(serve_api_tls, self._state, context)
        return f"https://127.0.0.1:{port}"


@pytest.fixture
def servers(locked: ApiState, pki: Path, nursery: trio.Nursery) -> Servers:
    """Servers that do not run yet."""
    return Servers(locked, pki, nursery)


async def get(client: KubeClient) -> str:
    """The name of the node, by a request and then by a watch, which has its own connection."""
    with trio.fail_after(HANG_SECONDS):
        name = (await client.get(Node, "node-1")).metadata.name
        async with client.watch(Node, resource_version="1") as events:
            event = await anext(aiter(events))
    assert event.object is not None
    assert event.object.metadata.name == name
    return name


async def ask(folder: Path, cluster: Cluster) -> str:
    """The name of the node, by the kubeconfig of a person."""
    credentials = await log_in(read_context((kubeconfig(folder, cluster, {"token": "secret"}),)))
    async with open_client(credentials) as client:
        return await get(client)


async def test_a_certificate_may_be_for_another_name(
    servers: Servers, pki: Path, tmp_path: Path
) -> None:
    """The client asks for `tls-server-name`, which must be in the certificate."""
    ca = str(pki / "ca.crt")
    named: Cluster = {"server": await servers.start("named-server"), "certificate-authority": ca}
    assert await ask(tmp_path, {**named, "tls-server-name": NAME}) == "node-1"
    assert servers.asked_for == [NAME, NAME]
    with pytest.raises(Unavailable, match="IP address mismatch"):
        await ask(tmp_path, named)
    with pytest.raises(Unavailable, match="Hostname mismatch"):
        await ask(tmp_path, {**named, "tls-server-name": "other.example.com"})
    plain: Cluster = {"server": await servers.start("server"), "certificate-authority": ca}
    assert await ask(tmp_path, {**plain, "tls-server-name": "127.0.0.1"}) == "node-1"
    with pytest.raises(Unavailable, match="Hostname mismatch"):
        await ask(tmp_path, {**plain, "tls-server-name": NAME})


async def test_a_cluster_without_a_ca_is_trusted_as_the_system_does(
    servers: Servers, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SSL_CERT_FILE` replaces the system's CAs, as for kubectl."""
    cluster: Cluster = {"server": await servers.start("server")}
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    assert await ask(tmp_path, cluster) == "node-1"
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "stranger.crt"))
    with pytest.raises(Unavailable, match=UNTRUSTED):
        await ask(tmp_path, cluster)


async def test_verification_can_be_turned_off(servers: Servers, pki: Path, tmp_path: Path) -> None:
    """`true` verifies neither CA nor name; `false` and a missing field verify both."""
    cluster: Cluster = {"server": await servers.start("strange-server")}
    unverified = {**cluster, "insecure-skip-tls-verify": True}
    assert await ask(tmp_path, unverified) == "node-1"
    assert await ask(tmp_path, {**unverified, "tls-server-name": NAME}) == "node-1"
    assert servers.asked_for[-1] == NAME
    for verified in (
        cluster,
        {**cluster, "insecure-skip-tls-verify": False},
        {**cluster, "insecure-skip-tls-verify": None, "certificate-authority": str(pki / "ca.crt")},
    ):
        with pytest.raises(Unavailable, match=UNTRUSTED):
            await ask(tmp_path, verified)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"},
            "cluster.insecure-skip-tls-verify is true: then there must be no certificate-authority",
        ),
        ({"tls-server-name": ".a"}, "cluster.tls-server-name is '.a': no host name"),
        ({"tls-server-name": "a" * 64 + ".b"}, "cluster.tls-server-name is 'a"),
        ({"tls-server-name": "\u2028"}, "cluster.tls-server-name is '\\u2028': no host name"),
        ({"tls-server-name": "a." * 200 + "b"}, "cluster.tls-server-name is 'a"),
        ({"tls-server-name": 5}, "clusters.0.cluster.tls-server-name"),
        ({"insecure-skip-tls-verify": "maybe"}, "clusters.0.cluster.insecure-skip-tls-verify"),
        ({"proxy-url": "http://p"}, "cluster.proxy-url is not supported"),
    ],
)
async def test_an_unusable_field_is_named(fields: Cluster, words: str, tmp_path: Path) -> None:
    """The message has the file and the field, and is one line."""
    with pytest.raises(ConfigError) as caught:
        await ask(tmp_path, {"server": "https://127.0.0.1:1", **fields})
    assert str(caught.value).startswith(f"{tmp_path}/kubeconfig: {words}")
    assert len(str(caught.value).splitlines()) == 1
