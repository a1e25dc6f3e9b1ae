"""Credential plugins: their input, their answers, and how long the client keeps these."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.api.pki import kubeconfig
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.kubeconfig import read_context
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.base.errors import ConfigError, Forbidden
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.tools.login.login import log_in

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
SINCE = date(2026, 1, 1)
"""YAML has dates, JSON has not."""
PAST, FUTURE = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00+02:00"


class Plugin:
    """A plugin that prints the file `answer`, and notes each run and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = folder / "plugin"
        script.write_text(
            f'#!/bin/sh\ncd {folder}\necho run >>runs\nprintf "%s" "$KUBERNETES_EXEC_INFO" >told\n'
            'echo "$@ $REGION" >words\ncat answer\n'
        )
        script.chmod(0o755)

    @property
    def runs(self) -> int:
        """How often it ran."""
        file = self.folder / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def told(self) -> Any:
        """What it was told last."""
        return json.loads((self.folder / "told").read_text())

    def answers(self, version: str = V1, **status: str) -> None:
        """What it prints from now on."""
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(answer))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """A plugin that gives the right token."""
    made = Plugin(tmp_path)
    made.answers(token="secret")
    return made


def execing(
    folder: Path, port: int, pki: Path, token: str | None = None, /, **fields: object
) -> Path:
    """A kubeconfig whose user is known by the plugin, unless there is a token; fields of `exec`."""
    cluster: dict[str, object] = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(pki / "ca.crt"),
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": SINCE}}],
    }
    given = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", **fields}
    return kubeconfig(folder, cluster, {"exec": given, "token": token})


async def logged_in(path: Path) -> Credentials:
    """The credentials of the current context."""
    with trio.fail_after(10):
        return await log_in(read_context((path,)))


async def get(client: KubeClient) -> str:
    """The name of the node, read from the server."""
    with trio.fail_after(10):
        return (await client.get(Node, "node-1")).metadata.name


async def test_a_token_without_an_end_is_kept(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path
) -> None:
    """The program runs once for all requests."""
    async with open_client(await logged_in(execing(tmp_path, port, pki))) as client:
        for _ in range(3):
            assert await get(client) == "node-1"
    assert plugin.runs == 1


async def test_a_token_is_kept_until_it_expires(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path
) -> None:
    """One that has ended is replaced before it is sent, for watches too."""
    plugin.answers(token="ended", expirationTimestamp=PAST)
    async with open_client(await logged_in(execing(tmp_path, port, pki))) as client:
        plugin.answers(token="secret", expirationTimestamp=PAST)
        assert await get(client) == "node-1"
        plugin.answers(token="secret", expirationTimestamp=FUTURE)
        with trio.fail_after(10):
            async with client.watch(Node, resource_version="1"):
                pass
        assert await get(client) == "node-1"
    assert plugin.runs == 3


async def test_a_refused_token_is_asked_for_once_more(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path
) -> None:
    """The request is sent again with the new one; a second refusal is the answer."""
    plugin.answers(token="revoked", expirationTimestamp=FUTURE)
    async with open_client(await logged_in(execing(tmp_path, port, pki))) as client:
        plugin.answers(token="secret", expirationTimestamp=FUTURE)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(get, client)
        assert plugin.runs == 2
    plugin.answers(token="wrong")
    async with open_client(await logged_in(execing(tmp_path, port, pki))) as client:
        with pytest.raises(Forbidden):
            await get(client)
    assert plugin.runs == 4


async def test_a_client_certificate_is_shown(
    plugin: Plugin, locked: ApiState, port: int, pki: Path, tmp_path: Path
) -> None:
    """A certificate that the server does not know ends the handshake, another one gets in."""
    locked.token = None
    data = {
        field: (pki / f"client.{end}").read_text()
        for field, end in (("clientCertificateData", "crt"), ("clientKeyData", "key"))
    }
    plugin.answers(**data)
    credentials = await logged_in(execing(tmp_path, port, pki))
    assert credentials.token is None
    async with open_client(credentials) as client:
        assert await get(client) == "node-1"
    plugin.answers(**data | {"clientKeyData": (pki / "server.key").read_text()})
    with pytest.raises(ConfigError, match=r"clientCertificateData and .*clientKeyData do not fit"):
        await logged_in(execing(tmp_path, port, pki))


async def test_a_plugin_is_told_what_it_needs(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version, words, variables, and of the cluster what it asks for; no terminal is here.

    What another kubectl told its plugin, of which this program may be a child, is not for it.
    """
    monkeypatch.setenv("KUBERNETES_EXEC_INFO", '{"kind": "ExecCredential", "spec": {}}')
    plugin.answers(V1BETA1, token="secret")
    fields = {"args": ["get", "token"], "env": [{"name": "REGION", "value": "north"}]}
    await logged_in(
        execing(tmp_path, port, pki, apiVersion=V1BETA1, interactiveMode=None, **fields)
    )
    assert (tmp_path / "words").read_text() == "get token north\n"
    wanted = {"apiVersion": V1BETA1, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert plugin.told == wanted

    await logged_in(execing(tmp_path, port, pki, apiVersion=V1BETA1, provideClusterInfo=True))
    cluster = plugin.told["spec"]["cluster"]
    assert (cluster["server"], cluster["config"]) == (
        f"https://127.0.0.1:{port}",
        {"a": str(SINCE)},
    )
    assert cluster["certificate-authority-data"].startswith("LS0tLS1CRUdJTi")  # -----BEGIN
    assert not cluster.keys() & {"tls-server-name", "insecure-skip-tls-verify"}


async def test_a_plugin_is_told_how_the_cluster_is_trusted(plugin: Plugin, tmp_path: Path) -> None:
    """It may ask the same server."""
    user: dict[str, object] = {
        "exec": {
            "apiVersion": V1BETA1,
            "command": str(plugin.folder / "plugin"),
            "provideClusterInfo": True,
        }
    }
    plugin.answers(V1BETA1, token="secret")
    cluster: dict[str, object] = {"server": "https://h", "tls-server-name": "n"}
    cluster["insecure-skip-tls-verify"] = True
    await logged_in(kubeconfig(tmp_path, cluster, user))
    assert plugin.told["spec"]["cluster"] == cluster


async def test_a_plugin_may_ask_on_the_terminal(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is told never to."""
    script = tmp_path / "plugin"
    script.write_text(script.read_text().replace("cat answer", "read typed; cat answer"))
    outer, inner = os.openpty()
    os.write(outer, b"yes\n")
    with os.fdopen(inner) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        await logged_in(execing(tmp_path, port, pki, interactiveMode="Always"))
        assert plugin.told["spec"] == {"interactive": True}
        await logged_in(execing(tmp_path, port, pki, interactiveMode="Never"))
        assert plugin.told["spec"] == {"interactive": False}
    os.close(outer)


async def test_a_token_in_the_kubeconfig_wins(
    plugin: Plugin, port: int, pki: Path, tmp_path: Path
) -> None:
    """The program does not run then, as in kubectl."""
    credentials = await logged_in(execing(tmp_path, port, pki, "given"))
    assert credentials.token is not None
    assert (credentials.token.current(), plugin.runs) == ("given", 0)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "user.exec.apiVersion"),
        ({"command": ""}, "user.exec.command"),
        ({"interactiveMode": None}, "user.exec: interactiveMode is missing"),
        ({"interactiveMode": "Always"}, "stdin is no terminal"),
        ({"env": [{"value": "a"}]}, "user.exec.env.0.name"),
        (
            {"command": "no-such-plugin", "installHint": "Ask your cloud."},
            "cannot run no-such-plugin: No such file or directory: Ask your cloud.",
        ),
        ({"command": "/bin/sh", "args": ["-c", "exit 3"]}, "/bin/sh failed with exit status 3"),
        ({"args": ["\0"]}, "cannot run"),
    ],
)
async def test_an_unusable_plugin_is_named(
    fields: dict[str, object], words: str, plugin: Plugin, pki: Path, tmp_path: Path
) -> None:
    """The message has the file, the program and what to do."""
    with pytest.raises(ConfigError) as caught:
        await logged_in(execing(tmp_path, 1, pki, **fields))
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/kubeconfig: user.exec")
    assert plugin.runs == 0


def without(part: str) -> Callable[[dict[str, Any]], object]:
    """Takes a field of an answer away."""
    return lambda answer: answer.pop(part)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("status"), "not understood.status: "),
        (without("kind"), "not understood.kind: "),
        (lambda answer: answer.update(apiVersion=V1BETA1), f"answered in {V1BETA1}, not in {V1}"),
        (lambda answer: answer["status"].pop("token"), "neither token nor clientCertificateData"),
        (
            lambda answer: answer["status"].update(clientKeyData="secret"),
            "clientCertificateData and clientKeyData go together",
        ),
        (
            lambda answer: answer["status"].update(expirationTimestamp="soon"),
            "not understood.status.expirationTimestamp: ",
        ),
        (lambda answer: answer["status"].update(token="secret\nsecret"), "not one line of ASCII"),
        (lambda answer: answer["status"].update(token=["secret"]), "not understood.status.token: "),
        (None, "not understood: Invalid JSON"),
    ],
)
async def test_an_answer_that_is_not_understood_is_no_credential(
    change: Callable[[dict[str, Any]], object] | None,
    words: str,
    plugin: Plugin,
    pki: Path,
    tmp_path: Path,
) -> None:
    """The message has the field, and does not show the answer, which may be a token."""
    answer = json.loads((tmp_path / "answer").read_text())
    if change is not None:
        change(answer)
    text = json.dumps(answer) if change is not None else "secret"
    (plugin.folder / "answer").write_text(text)
    with pytest.raises(ConfigError) as caught:
        await logged_in(execing(tmp_path, 1, pki))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
