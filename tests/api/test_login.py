"""Credential plugins: their input, their answers, and how long the client keeps these."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
    """A plugin that prints the file `answer`, and notes each run and its input.

    Attributes:
        cluster: The cluster in the kubeconfig that names the plugin.
    """

    def __init__(self, folder: Path, pki: Path, port: int) -> None:
        self.folder = folder
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"a": SINCE}}
        self.cluster: dict[str, object] = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": str(pki / "ca.crt"),
            "extensions": [extension],
        }
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
        """Its last input."""
        return json.loads((self.folder / "told").read_text())

    def answers(self, version: str = V1, **status: object) -> None:
        """Print this from now on."""
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(answer))

    async def log_in(self, token: str | None = None, /, **fields: object) -> Credentials:
        """Log in by a kubeconfig with these fields of `exec`, and perhaps a token."""
        given = {"apiVersion": V1, "command": "./plugin", "interactiveMode": "Never", **fields}
        path = kubeconfig(self.folder, self.cluster, {"exec": given, "token": token})
        with trio.fail_after(10):
            return await log_in(read_context((path,)))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        """A client of a person who logged in."""
        async with open_client(await self.log_in()) as client:
            yield client


@pytest.fixture
def plugin(port: int, pki: Path, tmp_path: Path) -> Plugin:
    """A plugin that gives the right token."""
    made = Plugin(tmp_path, pki, port)
    made.answers(token="secret")
    return made


async def get(client: KubeClient) -> str:
    """The name of the node, read from the server."""
    with trio.fail_after(10):
        return (await client.get(Node, "node-1")).metadata.name


async def test_a_token_without_an_end_is_kept(plugin: Plugin) -> None:
    """The program runs once for all requests."""
    async with plugin.client() as client:
        for _ in range(3):
            assert await get(client) == "node-1"
    assert plugin.runs == 1


async def test_a_token_is_kept_until_it_expires(plugin: Plugin) -> None:
    """The plugin replaces one that has ended before a request or watch sends it."""
    plugin.answers(token="ended", expirationTimestamp=PAST)
    async with plugin.client() as client:
        plugin.answers(token="secret", expirationTimestamp=PAST)
        assert await get(client) == "node-1"
        plugin.answers(token="secret", expirationTimestamp=FUTURE)
        with trio.fail_after(10):
            async with client.watch(Node, resource_version="1"):
                pass
        assert await get(client) == "node-1"
    assert plugin.runs == 3


async def test_a_refused_token_is_replaced_once(plugin: Plugin) -> None:
    """The request is sent again with the new one; a second refusal is the answer."""
    plugin.answers(token="revoked", expirationTimestamp=FUTURE)
    async with plugin.client() as client:
        plugin.answers(token="secret", expirationTimestamp=FUTURE)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(get, client)
        assert plugin.runs == 2
    plugin.answers(token="wrong")
    async with plugin.client() as client:
        with pytest.raises(Forbidden):
            await get(client)
    assert plugin.runs == 4


async def test_a_refused_watch_is_sent_again_with_another_token(plugin: Plugin) -> None:
    """As a request; of a token without an end only the API server says that it has ended."""
    plugin.answers(token="revoked")
    async with plugin.client() as client:
        plugin.answers(token="secret")
        with trio.fail_after(10):
            async with client.watch(Node, resource_version="1") as events:
                assert (await anext(events)).object is not None
    assert plugin.runs == 2


async def test_a_client_certificate_is_shown(plugin: Plugin, locked: ApiState, pki: Path) -> None:
    """A certificate of the cluster's CA gets in; one with another's key is an error."""
    locked.token = None
    certificate, key = ((pki / f"client.{end}").read_text() for end in ("crt", "key"))
    plugin.answers(clientCertificateData=certificate, clientKeyData=key)
    credentials = await plugin.log_in()
    assert credentials.token is None
    async with open_client(credentials) as client:
        assert await get(client) == "node-1"
    other = (pki / "server.key").read_text()
    plugin.answers(clientCertificateData=certificate, clientKeyData=other)
    with pytest.raises(ConfigError, match=r"clientCertificateData and .*clientKeyData do not fit"):
        await plugin.log_in()


async def test_a_plugin_gets_its_input(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has version, words, variables, and the cluster if the kubeconfig says so.

    This program may be the child of another kubectl, whose plugin's input is not for this one.
    """
    monkeypatch.setenv("KUBERNETES_EXEC_INFO", '{"kind": "ExecCredential", "spec": {}}')
    plugin.answers(V1BETA1, token="secret")
    fields = {"args": ["get", "token"], "env": [{"name": "REGION", "value": "north"}]}
    await plugin.log_in(apiVersion=V1BETA1, interactiveMode=None, **fields)
    assert (plugin.folder / "words").read_text() == "get token north\n"
    wanted = {"apiVersion": V1BETA1, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert plugin.told == wanted

    await plugin.log_in(apiVersion=V1BETA1, provideClusterInfo=True)
    cluster = plugin.told["spec"]["cluster"]
    assert (cluster["server"], cluster["config"]) == (plugin.cluster["server"], {"a": str(SINCE)})
    assert cluster["certificate-authority-data"].startswith("LS0tLS1CRUdJTi")  # -----BEGIN
    assert not cluster.keys() & {"tls-server-name", "insecure-skip-tls-verify"}

    plugin.cluster = {"server": "https://h", "tls-server-name": "n"}
    plugin.cluster["insecure-skip-tls-verify"] = True
    await plugin.log_in(apiVersion=V1BETA1, provideClusterInfo=True)
    assert plugin.told["spec"]["cluster"] == plugin.cluster


async def test_a_plugin_may_ask_on_the_terminal(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its mode is never."""
    script = plugin.folder / "plugin"
    script.write_text(script.read_text().replace("cat answer", "read typed; cat answer"))
    outer, inner = os.openpty()
    os.write(outer, b"yes\n")
    with os.fdopen(inner) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        for mode, is_interactive in (("Always", True), ("Never", False)):
            await plugin.log_in(interactiveMode=mode)
            assert plugin.told["spec"] == {"interactive": is_interactive}
    os.close(outer)


async def test_a_token_in_the_kubeconfig_wins(plugin: Plugin) -> None:
    """The program does not run then, as in kubectl."""
    credentials = await plugin.log_in("given")
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
            {"command": "/no-such-plugin", "installHint": "Ask your cloud."},
            "cannot run /no-such-plugin: No such file or directory: Ask your cloud.",
        ),
        ({"command": "/bin/sh", "args": ["-c", "exit 3"]}, "/bin/sh failed with exit status 3"),
        ({"args": ["\0"]}, "cannot run"),
    ],
)
async def test_an_unusable_plugin_is_named(
    fields: dict[str, object], words: str, plugin: Plugin
) -> None:
    """The message has the file, the program and what to do."""
    with pytest.raises(ConfigError) as caught:
        await plugin.log_in(**fields)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{plugin.folder}/kubeconfig: user.exec")
    assert plugin.runs == 0


TOKEN = {"token": "secret"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"status": None}, "not understood.status: "),
        ({"kind": None}, "not understood.kind: "),
        ({"apiVersion": V1BETA1}, f"answered in {V1BETA1}, not in {V1}"),
        ({"status": {}}, "neither token nor clientCertificateData"),
        ({"status": TOKEN | {"clientKeyData": "secret"}}, "and clientKeyData go together"),
        (
            {"status": TOKEN | {"expirationTimestamp": "soon"}},
            "not understood.status.expirationTimestamp: ",
        ),
        ({"status": {"token": "secret\nsecret"}}, "not one line of ASCII"),
        ({"status": {"token": ["secret"]}}, "not understood.status.token: "),
        ("secret", "not understood: "),
    ],
)
async def test_an_answer_that_is_not_understood_is_no_credential(
    answer: dict[str, Any] | str, words: str, plugin: Plugin
) -> None:
    """The message has the field, and does not show the answer, which may be a token."""
    if isinstance(answer, dict):
        whole = {"apiVersion": V1, "kind": "ExecCredential", "status": TOKEN} | answer
        answer = json.dumps({key: value for key, value in whole.items() if value is not None})
    (plugin.folder / "answer").write_text(answer)
    with pytest.raises(ConfigError) as caught:
        await plugin.log_in()
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
