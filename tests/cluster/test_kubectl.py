"""`kubectl npu` logs in by a real kubectl, to a real API server."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from dev.cluster.control_plane import ControlPlane
from dev.rig.waiting import HANG_SECONDS
from tests.cluster.conftest import Server
from tests.kubectl.conformance import ALL, ENDINGS, PROGRAM, asked, nothing_is_left, standard_input
from trio_npu_dra.kit.api.objects import Node, ObjectMeta
from trio_npu_dra.kit.base.errors import Forbidden
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli.kubectl_npu import main

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

PLUGIN = """\
#!/bin/sh
printf "Code: " >&2
read -r code
echo "{\\"apiVersion\\": \\"client.authentication.k8s.io/v1\\", \\"kind\\": \\"ExecCredential\\",\\
    \\"status\\": {\\"token\\": \\"$code\\"}}"
"""
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "one"},
    "spec": {
        "driver": "npu.huawei.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "npu-0"}],
    },
}


@pytest.fixture(autouse=True)
def _config(
    server: Server, administrator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kubeconfig with contexts of several users, and kubectl in `PATH`."""
    config: dict[str, Any] = json.loads(administrator.read_text())
    (here,), (cluster,), (user,) = config["contexts"], config["clusters"], config["users"]
    plugin = tmp_path / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    exec_ = {"apiVersion": version, "command": "./plugin", "interactiveMode": "Always"}
    away = {"name": "away", "cluster": {"server": "https://127.0.0.1:1"}}
    config["clusters"].append(away)
    config["users"] += [
        {"name": "nameless", "user": {}},
        {"name": "asking", "user": {"exec": exec_}},
        {
            "name": "missing",
            "user": {
                "exec": exec_
                | {
                    "command": "no-such-plugin",
                    "installHint": "Get it.",
                    "interactiveMode": "Never",
                }
            },
        },
        {"name": "wrong", "user": {"token": "wrong"}},
    ]
    known = {"cluster": cluster["name"], "user": user["name"]}
    config["contexts"] += [
        {"name": "other", "context": known | {"namespace": "team"}},
        {"name": "away", "context": {"cluster": "away", "user": "wrong"}},
        *({"name": name, "context": known | {"user": name}} for name in ("nameless", "asking")),
        *({"name": name, "context": known | {"user": name}} for name in ("missing", "wrong")),
    ]
    assert "namespace" not in here["context"]
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    if isinstance(server, ControlPlane):
        monkeypatch.setenv("PATH", f"{server.programs}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
async def test_kubectl_conforms(scenario: Callable[[], Awaitable[None]]) -> None:
    """As its stand-in."""
    await scenario()


@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
async def test_nothing_is_left(
    end: Callable[[trio.Process], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However the command ends."""
    await nothing_is_left(end, tmp_path_factory.mktemp("temporary"))


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--as=nobody", 1, "list resourceslices: resourceslices.resource.k8s.io is forbidden: "),
        ("--context=wrong", 1, "list resourceslices: Unauthorized (HTTP 401)"),
        ("--context=away", 1, "list resourceslices: dial tcp 127.0.0.1:1: connect: connection ref"),
        ("--context=missing", 1, "list resourceslices: getting credentials: exec: executable "),
        ("--context=nameless", 2, "kubectl asks for a user name and a password: "),
        ("--kubeconfig=/none", 2, "kubectl proxy ended: stat /none: no such file or directory"),
        ("--certificate-authority=/none", 2, "kubectl proxy ended: unable to read certificate-aut"),
        ("--as-group=a", 2, "kubectl proxy ended: requesting "),
    ],
)
def test_a_refusal_is_one_line(
    words: str, status: int, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the message of the API server or of kubectl, without its log."""
    assert main(["list", words]) == status
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"kubectl npu: {said}")


async def test_nothing_can_be_written() -> None:
    """The proxy refuses it, whatever the person may do."""
    with trio.fail_after(HANG_SECONDS):
        async with kubectl.open_cluster(asked()) as client:
            with pytest.raises(Forbidden, match="create nodes n: Forbidden"):
                await client.create(Node(metadata=ObjectMeta(name="n")))


@pytest.fixture
def terminal() -> Iterator[int]:
    """The other side of a terminal, which is our standard input."""
    with standard_input(*pty.openpty()) as outer:
        yield outer


def test_a_plugin_asks_on_the_terminal(
    server: Server, terminal: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it makes of the answer logs the person in."""
    server.kubectl("create", "serviceaccount", "person")
    try:
        os.write(terminal, server.kubectl("create", "token", "person").encode() + b"\n")
        assert main(["list", "--context=asking"]) == 1
    finally:
        server.kubectl("delete", "serviceaccount", "person")
    question, answer = capfd.readouterr().err.split("kubectl npu: ")
    assert question == "Code: "
    assert 'User "system:serviceaccount:default:person" cannot list resource' in answer


def test_a_server_may_have_a_path(capfd: pytest.CaptureFixture[str]) -> None:
    """As those behind Rancher have."""
    words = ["kubectl", "proxy", "--port=0", "--api-prefix=/k8s/"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        address = proxy.stdout.readline().split()[-1]
        assert main(["list", f"--server=http://{address}/k8s"]) == 0
        assert main(["list", f"--server=http://{address}/other"]) == 1
        proxy.terminate()
    assert "no device of npu.huawei.com is published" in capfd.readouterr().out


async def test_watching_prints_again_when_a_slice_is_made(server: Server) -> None:
    """The watch comes through the proxy."""
    with trio.fail_after(HANG_SECONDS):
        command = await trio.lowlevel.open_process([*PROGRAM, "-w"], stdout=subprocess.PIPE)
        assert command.stdout is not None
        shown = await command.stdout.receive_some()
        assert shown == b"no device of npu.huawei.com is published\n"
        server.kubectl("create", "--filename=-", stdin=json.dumps(SLICE))
        try:
            while b"\nn1 " not in shown:
                shown += await command.stdout.receive_some()
        finally:
            server.kubectl("delete", "resourceslice", "one")
            command.terminate()
            await command.wait()
            await command.stdout.aclose()
