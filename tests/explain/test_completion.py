"""What kubectl gets when a shell completes `kubectl npu`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.explain.world import device, slice_
from dev.rig.kubectl import stand_in
from trio_npu_dra.tools.cli import npu_completion

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster


def told(cluster: Cluster, *words: str) -> tuple[dict[str, str], str]:
    """The candidates with their descriptions, and the directive."""
    return asked(cluster.capsys, *words)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, str], str]:
    """The same without a cluster."""
    assert npu_completion.main(words) == 0
    *lines, directive = capsys.readouterr().out.splitlines()
    return dict(line.split("\t") for line in lines), directive


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([""], {"list": "", "node": "", "explain": "", "why-unhealthy": ""}),
        (["no"], {"node": ""}),
        (["node", ""], {"n1": "node", "n2": "node"}),
        (["node", "n1", ""], {}),
        (["node", "--driver=a.example", ""], {}),
        (["node", "--driver=", "n2"], {"n2": "node"}),
        (["list", ""], {}),
        (["explain", "tr"], {"train-0": "pod", "train": "claim"}),
        (["explain", "pod/l"], {"pod/large": "pod"}),
        (["explain", "claim/e"], {"claim/eval": "claim"}),
        (["explain", "node/n"], {}),
        (["explain", "-n", "default", "tr"], {"train-0": "pod", "train": "claim"}),
        (["-A", "explain", "inf"], {"infer": "claim"}),
        (["explain", "-n", ""], {"default": "it has claims"}),
        (["why-unhealthy", "n2/npu-3"], {"n2/npu-3": "device"}),
        (["explain", "it's"], {}),
    ],
)
def test_names_are_those_of_the_cluster(
    cluster: Cluster, words: list[str], found: dict[str, str]
) -> None:
    """Of what the command is about; no files of this machine."""
    assert told(cluster, *words) == (found, ":4")


def test_flags_and_their_choices_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """The shells put the flag before a value again."""
    assert asked(capsys, "--out") == ({"--output": "form of the output (default: table)"}, ":4")
    assert set(asked(capsys, "-o", "")[0]) == {"table", "wide", "json", "yaml"}
    assert set(asked(capsys, "--output=j")[0]) == {"json"}


def test_a_kubeconfig_is_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Which the shell completes by itself, unlike the values of other flags of kubectl."""
    assert asked(capsys, "--kubeconfig", "") == ({}, ":0")
    assert asked(capsys, "--context", "") == ({}, ":4")


@pytest.mark.parametrize("name", ["n\x1b[2J", "n$(reboot)", "n;ls", "n\n:0"])
def test_what_means_something_to_a_shell_is_not_offered(cluster: Cluster, name: str) -> None:
    """No object has such a name, whatever an API server says."""
    cluster.api.objects.append(slice_("s", device("npu-0"), node=name))
    assert set(told(cluster, "node", "n")[0]) == {"n1", "n2"}


def test_an_api_server_that_refuses_is_no_answer(cluster: Cluster) -> None:
    """Nor is a context that does not exist; the shell gets no error between its words."""
    cluster.api.forbidden = frozenset({"pods", "resourceslices"})
    assert told(cluster, "explain", "") == ({}, ":4")
    assert told(cluster, "node", "") == ({}, ":4")
    assert told(cluster, "--context=none", "node", "") == ({}, ":4")


def test_an_api_server_that_is_silent_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell would hang."""
    monkeypatch.setattr(npu_completion, "_PATIENCE_SECONDS", 0.1)
    place = tmp_path / "silent.sock"
    with stand_in(tmp_path, place), socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(place))
        silent.listen()
        assert asked(capsys, "node", "") == ({}, ":4")
