"""Promises of credentials: fields that are read, fields that are refused, and verified TLS."""

import base64
from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from tests.api.loops import LOOPS, run_on
from tests.api.pki import kubeconfig, openssl
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import (
    Credentials,
    from_kubeconfig,
    in_cluster,
    load_credentials,
    own_namespace,
)
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.base.errors import ConfigError, Unavailable


async def ask(credentials: Credentials) -> str:
    """The name of the node, read from the server."""
    with trio.fail_after(HANG_SECONDS):
        async with open_client(credentials) as client:
            return (await client.get(Node, "node-1")).metadata.name


async def test_a_service_account_gets_in(port: int, pki: Path, tmp_path: Path) -> None:
    """Token and CA of a pod reach the API server over TLS."""
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    assert await ask(in_cluster(environment, tmp_path)) == "node-1"


async def test_a_ca_bundle_may_have_comments_in_any_script(
    port: int, pki: Path, tmp_path: Path
) -> None:
    """OpenSSL ignores text around the certificates as comments."""
    comment = "# Autorit\xe9 de l'entreprise\n".encode()
    (tmp_path / "ca.crt").write_bytes(comment + (pki / "ca.crt").read_bytes() + b"\xff\n")
    path = kubeconfig(
        tmp_path,
        {"server": f"https://127.0.0.1:{port}", "certificate-authority": "ca.crt"},
        {"token": "secret"},
    )
    assert await ask(from_kubeconfig(path)) == "node-1"


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
    """The certificate must be for the host of the request."""
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


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which flag helps."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="--kubeconfig"):
        load_credentials(None)


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


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    """The path is in the message."""
    path = tmp_path / "kubeconfig"
    path.write_text("{")
    with pytest.raises(ConfigError, match="kubeconfig is not YAML"):
        load_credentials(path)
    with pytest.raises(ConfigError, match=r"cannot read kubeconfig .*absent"):
        load_credentials(tmp_path / "absent")


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The missing name is in the message."""
    path = tmp_path / "kubeconfig"
    path.write_text("current-context: there\n")
    with pytest.raises(ConfigError, match="no entry named 'there'"):
        from_kubeconfig(path)


def test_a_token_file_wins_over_a_token(pki: Path, tmp_path: Path) -> None:
    """The file wins, as in kubectl, because it is the one that is rotated."""
    (tmp_path / "token").write_text("from-file")
    cluster: dict[str, object] = {
        "server": "https://h",
        "certificate-authority": str(pki / "ca.crt"),
    }
    path = kubeconfig(tmp_path, cluster, {"token": "given", "tokenFile": "token"})
    token = from_kubeconfig(path).token
    assert token is not None
    assert token.current() == "from-file"


@pytest.mark.parametrize("content", ["\n", "two words", "two\nlines", "tökén", "\x00secret"])
def test_a_token_is_one_word_of_ascii(content: str, pki: Path, tmp_path: Path) -> None:
    """A token that cannot be a header is refused at the start, and is not shown."""
    (tmp_path / "token").write_text(content)
    (tmp_path / "ca.crt").write_bytes((pki / "ca.crt").read_bytes())
    environment = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="empty, or not one line") as caught:
        in_cluster(environment, tmp_path)
    assert "secret" not in str(caught.value)


def test_an_encrypted_key_is_refused(pki: Path, tmp_path: Path) -> None:
    """No prompt asks for its password, because no person is there to type it."""
    openssl(
        "pkcs8", "-topk8", "-in", "client.key", "-out", str(tmp_path / "locked.key"),
        "-passout", "pass:secret", folder=pki,
    )  # fmt: skip
    cluster: dict[str, object] = {
        "server": "https://h",
        "certificate-authority": str(pki / "ca.crt"),
    }
    user: dict[str, object] = {
        "client-certificate": str(pki / "client.crt"),
        "client-key": str(tmp_path / "locked.key"),
    }
    with pytest.raises(ConfigError, match="client-key do not fit"):
        from_kubeconfig(kubeconfig(tmp_path, cluster, user))


@pytest.mark.parametrize("loop", LOOPS)
async def test_tls_is_verified_on_both_loops(
    loop: str, port: int, pki: Path, tmp_path: Path
) -> None:
    """The cluster's CA lets the client in, another one does not."""
    cluster: dict[str, object] = {"server": f"https://127.0.0.1:{port}"}

    async def get() -> None:
        cluster["certificate-authority"] = str(pki / "ca.crt")
        path = kubeconfig(tmp_path, cluster, {"token": "secret"})
        async with open_client(from_kubeconfig(path)) as client:
            assert (await client.get(Node, "node-1")).metadata.name == "node-1"
        cluster["certificate-authority"] = str(pki / "stranger.crt")
        path = kubeconfig(tmp_path, cluster, {"token": "secret"})
        async with open_client(from_kubeconfig(path)) as client:
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await client.get(Node, "node-1")

    await run_on(loop, get)


async def test_the_environment_names_neither_proxy_nor_ca(
    port: int, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies are not used, and nothing but the cluster's CA is trusted."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "stranger.crt"))
    cluster: dict[str, object] = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(pki / "ca.crt"),
    }
    path = kubeconfig(tmp_path, cluster, {"token": "secret"})
    assert await ask(load_credentials(path)) == "node-1"
    monkeypatch.setenv("SSL_CERT_FILE", str(pki / "ca.crt"))
    cluster["certificate-authority"] = str(pki / "stranger.crt")
    path = kubeconfig(tmp_path, cluster, {"token": "secret"})
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await ask(load_credentials(path))


def test_a_pod_knows_its_namespace(tmp_path: Path) -> None:
    """Unless it has no service account."""
    assert own_namespace(tmp_path) == ""
    (tmp_path / "namespace").write_text("ascend-dra")
    assert own_namespace(tmp_path) == "ascend-dra"
