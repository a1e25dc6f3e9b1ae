"""Credentials: fields that the agent reads, fields that it refuses, and verified TLS."""

import base64
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from tests.api.pki import kubeconfig, openssl
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import (
    Credentials,
    in_cluster,
    load_credentials,
    own_namespace,
)
from trio_npu_dra.kit.api.kubeconfig import driver_credentials
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.base.errors import ConfigError, Unavailable

UNTRUSTED = "certificate verify failed"
HERE = "127.0.0.1"


async def ask(credentials: Credentials) -> str:
    """The name of the node, read from the server."""
    with trio.fail_after(HANG_SECONDS):
        async with open_client(credentials) as client:
            return (await client.get(Node, "node-1")).metadata.name


def pod(
    folder: Path, ca: bytes, content: str = "secret\n", *, host: str = HERE, port: int = 443
) -> Credentials:
    """The credentials of a pod whose service account is in *folder*."""
    (folder / "token").write_text(content)
    (folder / "ca.crt").write_bytes(ca)
    variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}
    return in_cluster(variables, folder)


def agent(folder: Path, ca: Path, server: str = "https://h", **user: object) -> Credentials:
    """The agent's credentials for a cluster with that CA."""
    cluster: dict[str, object] = {"server": server, "certificate-authority": str(ca)}
    fields = {name.replace("_", "-"): value for name, value in user.items()}
    return driver_credentials(kubeconfig(folder, cluster, fields))


async def test_a_service_account_gets_in(port: int, pki: Path, tmp_path: Path) -> None:
    """Token and CA of a pod reach the API server over TLS."""
    assert await ask(pod(tmp_path, (pki / "ca.crt").read_bytes(), port=port)) == "node-1"


async def test_a_ca_bundle_may_have_comments_in_any_script(
    port: int, pki: Path, tmp_path: Path
) -> None:
    """OpenSSL ignores text around the certificates as comments."""
    comment = "# Autorit\xe9 de l'entreprise\n".encode()
    ca = comment + (pki / "ca.crt").read_bytes() + b"\xff\n"
    assert await ask(pod(tmp_path, ca, port=port)) == "node-1"


async def test_a_kubeconfig_with_files_or_data_gets_in(
    port: int, pki: Path, tmp_path: Path
) -> None:
    """Paths are relative to the kubeconfig, which may also have certificates itself."""
    names = {
        "certificate-authority": "ca.crt",
        "client-certificate": "client.crt",
        "client-key": "client.key",
    }
    for name in names.values():
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    (tmp_path / "token").write_text("secret")
    data = {
        f"{field}-data": base64.b64encode((pki / name).read_bytes()).decode()
        for field, name in names.items()
    }
    for fields in ({**names, "tokenFile": "token"}, {**data, "token": "secret"}):
        cluster: dict[str, object] = {"server": f"https://{HERE}:{port}"}
        user: dict[str, object] = {}
        for field, value in fields.items():
            (cluster if field.startswith("cert") else user)[field] = value
        assert await ask(driver_credentials(kubeconfig(tmp_path, cluster, user))) == "node-1"


@pytest.mark.parametrize(
    ("host", "authority", "words"),
    [(HERE, "stranger", UNTRUSTED), ("localhost", "ca", "Hostname mismatch")],
)
async def test_another_server_is_not_trusted(
    host: str, authority: str, words: str, port: int, pki: Path, *, tmp_path: Path
) -> None:
    """Its certificate must be for the host of the request, and signed by the cluster's CA."""
    with pytest.raises(Unavailable, match=words):
        await ask(agent(tmp_path, pki / f"{authority}.crt", f"https://{host}:{port}", token="t"))


def test_an_ipv6_host_gets_brackets(pki: Path, tmp_path: Path) -> None:
    """The service host of an IPv6 cluster makes a valid URL."""
    found = pod(tmp_path, (pki / "ca.crt").read_bytes(), host="fd00::1")
    assert found.base_url == "https://[fd00::1]:443"


def test_the_message_outside_of_a_pod_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig is needed there."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load_credentials(None)


def test_a_socket_needs_no_identity(tmp_path: Path) -> None:
    """`unix://` names the socket of kubectl proxy, which has credentials of its own."""
    credentials = driver_credentials(kubeconfig(tmp_path, {"server": "unix:///run/api.sock"}))
    assert (credentials.unix_socket, credentials.tls) == (Path("/run/api.sock"), None)


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "http://h"}, {}, "cluster.server"),
        ({}, {}, "clusters.0.cluster.server"),
        ({"server": "https://h"}, {}, "certificate-authority"),
        ({"server": "https://h", "insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify"),
        ({"server": "https://h", "certificate-authority": "none"}, {}, "none"),
        ({"server": "https://h"}, {"exec": {"command": "x"}}, "user.exec"),
        ({"server": "https://h", "certificate-authority-data": "!"}, {}, "not base64"),
        ({"server": "https://h", "certificate-authority-data": "AAAA"}, {}, "not a PEM"),
        ({"server": "https://h:port"}, {}, "cluster.server"),
        ({"server": "https://"}, {}, "cluster.server"),
        ({"server": "https://h", "proxy-url": "http://p"}, {}, "cluster.proxy-url"),
        ({"server": "https://h", "tls-server-name": "n"}, {}, "cluster.tls-server-name"),
        ({"server": "unix:///s"}, {"exec": {"command": "x"}}, "user.exec"),
        ({"server": "https://h"}, {"auth-provider": {"name": "x"}}, "user.auth-provider"),
        ({"server": "https://h"}, {"username": "x"}, "user.username"),
        ({"server": "https://h"}, {"password": "x"}, "user.password"),
        ({"server": "https://h"}, {"as": "x"}, "user.as"),
        ({"server": "https://h"}, {"as-groups": ["x"]}, "user.as-groups"),
    ],
)
def test_an_unsupported_field_is_named(
    cluster: dict[str, object], user: dict[str, object], words: str, tmp_path: Path
) -> None:
    """The message has the file and the field."""
    with pytest.raises(ConfigError, match=words) as caught:
        driver_credentials(kubeconfig(tmp_path, cluster, user))
    assert str(tmp_path) in str(caught.value)


def test_a_certificate_needs_its_key(pki: Path, tmp_path: Path) -> None:
    """A certificate without a key, with another's, or with an encrypted one is an error.

    No prompt asks for the key's password, because no person is there to type it.
    """
    locked = str(tmp_path / "locked.key")
    openssl(
        "pkcs8", "-topk8", "-in", "client.key", "-out", locked, "-passout", "pass:secret",
        folder=pki,
    )  # fmt: skip
    certificate, ca = str(pki / "client.crt"), pki / "ca.crt"
    with pytest.raises(ConfigError, match="client-key"):
        agent(tmp_path, ca, client_certificate=certificate)
    for key in (str(pki / "server.key"), locked):
        with pytest.raises(ConfigError, match="client-key do not fit"):
            agent(tmp_path, ca, client_certificate=certificate, client_key=key)


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    with pytest.raises(ConfigError, match="kubeconfig is not YAML"):
        load_credentials(path)
    with pytest.raises(ConfigError, match=r"cannot read kubeconfig .*absent"):
        load_credentials(tmp_path / "absent")


def test_a_name_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """Of the current context, its cluster and its user."""
    path = kubeconfig(tmp_path, {"server": "unix:///s"})
    good = path.read_text()
    for old, new, words in (
        ("current-context: here", "current-context: ''", "current-context is missing"),
        ("current-context: here", "current-context: b", "contexts has no entry named 'b'"),
        ("cluster: c\n", "cluster: b\n", "clusters has no entry named 'b'"),
        ("user: u\n", "user: b\n", "users has no entry named 'b'"),
    ):
        path.write_text(good.replace(old, new))
        with pytest.raises(ConfigError) as caught:
            driver_credentials(path)
        assert str(caught.value) == f"{path}: {words}"


def test_a_token_file_wins_over_a_token(pki: Path, tmp_path: Path) -> None:
    """The file wins, as in kubectl, because it is the one that is rotated."""
    (tmp_path / "token").write_text("from-file")
    token = agent(tmp_path, pki / "ca.crt", token="given", tokenFile="token").token
    assert token is not None
    assert token.current() == "from-file"


@pytest.mark.parametrize(
    ("server", "base_url"),
    [
        ("https://proxy/team%20a", "https://proxy/team%20a"),
        ("https://proxy/team a/", "https://proxy/team%20a"),
        ("https://proxy/a%2Fb//", "https://proxy/a%2Fb"),
        ("https://proxy/\xe4?x=%20#y", "https://proxy/%C3%A4"),
        ("https://me:secret@h:6443", "https://h:6443"),
        ("https://[::1]:6443/k8s/", "https://[::1]:6443/k8s"),
        ("https://b\xfccher.example", "https://xn--bcher-kva.example"),
        ("https://h:99999", "Port out of range"),
        ("https://a..b", "idna"),
        (f"https://{'a' * 64}.example", "idna"),
        ("https://.a", "idna|dot"),
        ("https://xn--a:1", "https://xn--a:1"),
    ],
)
def test_a_server_is_an_address_or_an_error(
    server: str, base_url: str, pki: Path, tmp_path: Path
) -> None:
    """As client-go takes it; what cannot be asked for is an error at the start."""
    if base_url.startswith("https://"):
        assert agent(tmp_path, pki / "ca.crt", server).base_url == base_url
        return
    with pytest.raises(ConfigError, match=rf"kubeconfig: cluster\.server is .*{base_url}"):
        agent(tmp_path, pki / "ca.crt", server)
    host, _, port = server.removeprefix("https://").partition(":")
    with pytest.raises(ConfigError, match=f"KUBERNETES_SERVICE_PORT is .*{base_url}"):
        pod(tmp_path, (pki / "ca.crt").read_bytes(), host=host, port=int(port or 443))


@pytest.mark.parametrize("content", ["\n", "two words", "two\nlines", "tökén", "\x00secret"])
def test_a_token_is_one_word_of_ascii(content: str, pki: Path, tmp_path: Path) -> None:
    """The start fails with a token that cannot be a header, and does not show it."""
    with pytest.raises(ConfigError, match="token") as caught:
        pod(tmp_path, (pki / "ca.crt").read_bytes(), content)
    assert "secret" not in str(caught.value)


async def test_the_environment_names_neither_proxy_nor_ca(
    port: int, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client uses no proxy, and trusts nothing but the cluster's CA."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "stranger.crt"))
    server = f"https://{HERE}:{port}"
    assert await ask(agent(tmp_path, pki / "ca.crt", server, token="secret")) == "node-1"
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    with pytest.raises(Unavailable, match=UNTRUSTED):
        await ask(agent(tmp_path, pki / "stranger.crt", server, token="secret"))


def test_a_pod_knows_its_namespace(tmp_path: Path) -> None:
    """Unless it has no service account."""
    assert own_namespace(tmp_path) == ""
    (tmp_path / "namespace").write_text("ascend-dra")
    assert own_namespace(tmp_path) == "ascend-dra"
