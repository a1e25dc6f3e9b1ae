"""Promises of credentials: what is read, what is refused, and that TLS is verified."""

import base64
import ssl
import subprocess
from pathlib import Path

import pytest
import trio
import yaml

from trio_npu_dra.errors import ConfigError, Unavailable
from trio_npu_dra.kube.client import open_client
from trio_npu_dra.kube.credentials import Credentials, Token, from_kubeconfig, in_cluster
from trio_npu_dra.kube.objects import Node, ObjectMeta
from trio_npu_dra.standins.api_server import serve_api_tls
from trio_npu_dra.standins.api_state import ApiState


def openssl(*arguments: str, folder: Path) -> None:
    """Run openssl in *folder*."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_authority(folder: Path, name: str) -> None:
    """A CA: `<name>.crt` and `<name>.key`."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.crt",
        "-subj", f"/CN={name}", "-days", "2", folder=folder,
    )  # fmt: skip


def make_certificate(folder: Path, name: str, extension: str) -> None:
    """A certificate of the CA `ca`: `<name>.crt` and `<name>.key`."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        "req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr",
        "-subj", f"/CN={name}", folder=folder,
    )  # fmt: skip
    (folder / "extensions").write_text(extension)
    openssl(
        "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
        "-CAcreateserial", "-out", f"{name}.crt", "-days", "2", "-extfile", "extensions",
        folder=folder,
    )  # fmt: skip


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CA, server and client certificates, and a CA of someone else."""
    folder = tmp_path_factory.mktemp("pki")
    make_authority(folder, "ca")
    make_authority(folder, "stranger")
    make_certificate(folder, "server", "subjectAltName=IP:127.0.0.1")
    make_certificate(folder, "client", "extendedKeyUsage=clientAuth")
    return folder


@pytest.fixture
def state() -> ApiState:
    """An API server that asks for a token and has one node."""
    state = ApiState(token="secret")
    state.add(Node(metadata=ObjectMeta(name="node-1")))
    return state


@pytest.fixture
async def port(state: ApiState, pki: Path, nursery: trio.Nursery) -> int:
    """Its port; it wants a client certificate too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "server.crt", pki / "server.key")
    context.load_verify_locations(pki / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    port: int = await nursery.start(serve_api_tls, state, context)
    return port


def kubeconfig(
    folder: Path, cluster: dict[str, object], user: dict[str, object] | None = None
) -> Path:
    """A kubeconfig file with one context."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


async def ask(credentials: Credentials) -> str:
    """The name of the node, as the server tells it."""
    with trio.fail_after(5):
        async with open_client(credentials) as client:
            return (await client.get(Node, "node-1")).metadata.name


async def test_a_service_account_gets_in(port: int, pki: Path, tmp_path: Path) -> None:
    """Token and CA of a pod reach the API server over TLS."""
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    assert await ask(in_cluster(environment, tmp_path)) == "node-1"


async def test_a_kubeconfig_with_files_gets_in(port: int, pki: Path, tmp_path: Path) -> None:
    """Paths are relative to the kubeconfig."""
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    (tmp_path / "token").write_text("secret")
    path = kubeconfig(
        tmp_path,
        {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"},
        {"tokenFile": "token", "client-certificate": "client.crt", "client-key": "client.key"},
    )
    assert await ask(from_kubeconfig(path)) == "node-1"


async def test_a_kubeconfig_with_data_gets_in(port: int, pki: Path, tmp_path: Path) -> None:
    """Certificates can be in the file itself."""
    data = {
        name: base64.b64encode((pki / name).read_bytes()).decode()
        for name in ("ca.crt", "client.crt", "client.key")
    }
    path = kubeconfig(
        tmp_path,
        {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": data["ca.crt"]},
        {
            "token": "secret",
            "client-certificate-data": data["client.crt"],
            "client-key-data": data["client.key"],
        },
    )
    assert await ask(from_kubeconfig(path)) == "node-1"


async def test_a_server_of_another_ca_is_not_trusted(port: int, pki: Path, tmp_path: Path) -> None:
    """Nothing is sent to a server whose certificate the cluster's CA did not sign."""
    path = kubeconfig(
        tmp_path,
        {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(pki / "stranger.crt"),
        },
        {"token": "secret"},
    )
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await ask(from_kubeconfig(path))


async def test_a_server_of_another_name_is_not_trusted(
    port: int, pki: Path, tmp_path: Path
) -> None:
    """The certificate must be for the host that is asked."""
    path = kubeconfig(
        tmp_path,
        {
            "server": f"https://localhost:{port}",
            "certificate-authority": str(pki / "ca.crt"),
        },
    )
    with pytest.raises(Unavailable, match="Hostname mismatch"):
        await ask(from_kubeconfig(path))


def test_an_ipv6_host_gets_brackets(pki: Path, tmp_path: Path) -> None:
    """The service host of an IPv6 cluster makes a valid URL."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environment, tmp_path).base_url == "https://[fd00::1]:443"


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    """The message says which flag helps."""
    with pytest.raises(ConfigError, match="--kubeconfig"):
        in_cluster({}, tmp_path)


def test_a_socket_needs_no_identity(tmp_path: Path) -> None:
    """`unix://` names the socket of kubectl proxy, which has credentials of its own."""
    path = kubeconfig(tmp_path, {"server": "unix:///run/api.sock"})
    credentials = from_kubeconfig(path)
    assert (credentials.unix_socket, credentials.tls) == (Path("/run/api.sock"), None)


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "http://h"}, {}, "cluster.server"),
        ({}, {}, "clusters.0.cluster.server"),
        ({"server": "https://h"}, {}, "certificate-authority"),
        ({"server": "https://h", "insecure-skip-tls-verify": True}, {}, "insecure-skip-tls-verify"),
        ({"server": "https://h", "certificate-authority": "none"}, {}, "none"),
        ({"server": "https://h", "certificate-authority-data": "!"}, {}, "not base64"),
        ({"server": "https://h", "certificate-authority-data": "AAAA"}, {}, "not a PEM"),
        ({"server": "https://h"}, {"exec": {"command": "x"}}, "user.exec"),
        ({"server": "https://h"}, {"username": "x"}, "user.username"),
    ],
)
def test_what_cannot_be_used_is_named(
    cluster: dict[str, object], user: dict[str, object], words: str, tmp_path: Path
) -> None:
    """The message has the file and the field."""
    with pytest.raises(ConfigError, match=words) as caught:
        from_kubeconfig(kubeconfig(tmp_path, cluster, user))
    assert str(tmp_path) in str(caught.value)


def test_a_certificate_needs_its_key(pki: Path, tmp_path: Path) -> None:
    """One without the other, or two that do not fit, are refused."""
    cluster: dict[str, object] = {
        "server": "https://h",
        "certificate-authority": str(pki / "ca.crt"),
    }
    certificate = {"client-certificate": str(pki / "client.crt")}
    with pytest.raises(ConfigError, match="client-key"):
        from_kubeconfig(kubeconfig(tmp_path, cluster, dict(certificate)))
    other_key = {**certificate, "client-key": str(pki / "server.key")}
    with pytest.raises(ConfigError, match="do not fit"):
        from_kubeconfig(kubeconfig(tmp_path, cluster, dict(other_key)))


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The missing name is in the message."""
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: there\n")
    with pytest.raises(ConfigError, match="no entry named 'there'"):
        from_kubeconfig(path)


def test_a_token_file_is_read_again_each_minute(tmp_path: Path) -> None:
    """A rotated token is used a minute later at most; an unreadable file keeps the old one."""
    now = 0.0
    file = tmp_path / "token"
    file.write_text("first\n")
    token = Token(file, clock=lambda: now)
    file.write_text("second\n")
    assert token.current() == "first"
    now = 61.0
    assert token.current() == "second"
    file.unlink()
    now = 200.0
    assert token.current() == "second"


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    """A token must be there at start."""
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="empty"):
        Token(tmp_path / "token")
