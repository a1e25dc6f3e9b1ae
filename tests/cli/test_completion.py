"""What a shell is offered for `npu-dra`, by the protocol of argcomplete's scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trio_npu_dra.agent.cli.main import COMMANDS, main


def offered(line: str, folder: Path) -> list[str]:
    """The candidates of a command line with the cursor at its end."""
    file = folder / "offered"
    shell = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(file),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    program = [sys.executable, "-m", "trio_npu_dra.agent.cli.main"]
    subprocess.run(program, env=os.environ | shell, check=True, timeout=60)
    return file.read_text().split("\n")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("npu-dra ", [*COMMANDS]),
        ("npu-dra s", ["serve", "simulate"]),
        ("npu-dra serve --sh", ["--sharing", "--shares-per-npu"]),
        ("npu-dra serve --sharing ", ["none", "shares"]),
        ("npu-dra serve --sharing=s", ["--sharing=shares"]),
        ("npu-dra serve --npu-metrics ", ["true", "false"]),
        ("npu-dra serve --log-level debug --dev", ["--dev-root", "--device-plugin"]),
        ("npu-dra doctor --stri", ["--strict"]),
        ("npu-dra inspect -o ", ["table", "yaml", "json"]),
        ("npu-dra simulate 910b4", ["910b4-8"]),
        ("npu-dra serve --kubeconfig /proc/self/stat", ["/proc/self/stat", "/proc/self/statm"]),
        ("npu-dra serve --node-name ", [""]),
        ("npu-dra nothing ", [""]),
    ],
)
def test_a_shell_is_offered_what_fits(line: str, found: list[str], tmp_path: Path) -> None:
    """Commands, flags of the command, choices and files."""
    words = offered(line, tmp_path)
    assert set(found) <= set(words)
    assert all(word.startswith(line.rpartition(" ")[2]) for word in words)


def test_nothing_on_the_line_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where bash is asked for the files of that name."""
    monkeypatch.chdir(tmp_path)
    for name in ("a'; touch ran; '", "$(touch ran)", "`touch ran`"):
        assert offered(f'npu-dra serve --kubeconfig "{name}', tmp_path) == [""]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs the program with the variables of the protocol."""
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "npu-dra" in script
    assert "_ARGCOMPLETE" in script
