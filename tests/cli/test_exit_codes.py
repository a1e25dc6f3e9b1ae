"""All commands keep one table of exit codes, which their help shows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trio_npu_dra.agent.cli import main as npu_dra
from trio_npu_dra.kit.base.terminal import ExitCode
from trio_npu_dra.tools.cli import kubectl_npu

Main = Callable[[list[str]], int]
COMMANDS: list[tuple[Main, list[str]]] = [
    (npu_dra.main, []),
    *((npu_dra.main, [command]) for command in npu_dra.COMMANDS),
    *((kubectl_npu.main, words) for words in ([], ["node"], ["explain"], ["why-unhealthy"])),
]


def code_of(main: Main, words: list[str]) -> int | str | None:
    """How the program ends."""
    try:
        return main(words)
    except SystemExit as end:
        return end.code


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster, no kubectl, and no node that could be examined."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("main", "words"), COMMANDS)
def test_help_is_fine_and_an_unknown_flag_is_not(
    main: Main, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every command; the help has the codes."""
    assert code_of(main, [*words, "--help"]) == ExitCode.FINE
    shown = capsys.readouterr().out
    assert all(f"\n  {code:<5}{code.meaning}\n" in shown for code in ExitCode)
    assert code_of(main, [*words, "--no-such-flag"]) == ExitCode.WRONG_USAGE
    assert "there is no flag --no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("main", "line", "code"),
    [
        (npu_dra.main, "", 2),
        (npu_dra.main, "serv", 2),
        (npu_dra.main, "serve", 2),
        (npu_dra.main, "serve --node-name=n --http-port=70000", 2),
        (npu_dra.main, "serve --node-name=n --kubeconfig=/none --host-root=/none", 2),
        (npu_dra.main, "health --driver-name=A_B", 2),
        (npu_dra.main, "health release", 2),
        (npu_dra.main, "health --kubelet-plugins-directory-path=/none", 1),
        (npu_dra.main, "serve --node-name=n --log-level=loud", 2),
        (npu_dra.main, "inspect --taint-effect=Loud=NoExecute --host-root=/none", 2),
        (npu_dra.main, "inspect --device-plugin=loud --host-root=/none", 2),
        (npu_dra.main, "doctor --sharing=share", 2),
        (npu_dra.main, "ranktable job/train", 2),
        (npu_dra.main, "simulate 910c --state=board", 2),
        (npu_dra.main, "simulate 910b4-8 --state=board --prebuilt=none", 2),
        (npu_dra.main, "simulate 910b4-8 --state=board --server=256", 2),
        (npu_dra.main, "simulate 910b4-8 --state=board --server=1 --super-pod=1", 2),
        (npu_dra.main, "simulate a3-16 --state=board --super-pod=1", 2),
        (npu_dra.main, "demo --profile=910c", 2),
        (kubectl_npu.main, "explai lonely", 2),
        (kubectl_npu.main, "--output=jsn", 2),
    ],
)
def test_a_command_keeps_the_table(main: Main, line: str, code: int) -> None:
    """1 is what the node, the cluster or a manifest has; 2 is what the caller gave."""
    assert code_of(main, line.split()) == code


def test_a_wrong_variable_is_like_a_wrong_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each command that reads variables."""
    monkeypatch.setenv("NPU_DRA_DRIVER_NAME", "A_B")
    for command in ("serve", "health", "inspect", "doctor"):
        assert npu_dra.main([command]) == ExitCode.WRONG_USAGE
        assert f"npu-dra {command}: NPU_DRA_DRIVER_NAME=A_B: " in capsys.readouterr().err
