"""The cluster that commands for people ask: by kubectl, or by a pod's account without it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from dev.explain.static_api import StaticApi, served
from dev.rig.waiting import HANG_SECONDS, until
from tests.kubectl.conformance import ALL, ENDINGS, asked, nothing_is_left, standard_input
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli import npu_completion
from trio_npu_dra.tools.cli.kubectl_npu import main


@pytest.fixture
def _stand_in(tmp_path: Path) -> Iterator[None]:
    with served(StaticApi([]), tmp_path, {"other": "team"}):
        yield


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
async def test_the_stand_in_conforms(scenario: Callable[[], Awaitable[None]]) -> None:
    """As real ones do: tests/cluster/test_kubectl.py."""
    await scenario()


@pytest.mark.usefixtures("_stand_in")
@pytest.mark.parametrize("end", ENDINGS, ids=lambda end: end.__name__)
async def test_nothing_is_left(
    end: Callable[[trio.Process], None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However the command ends."""
    await nothing_is_left(end, tmp_path_factory.mktemp("temporary"))


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a kubectl that does what is given to a shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def make(commands: str) -> None:
        path = tmp_path / "kubectl"
        path.write_text(f"#!/bin/sh\n{commands}\n")
        path.chmod(0o755)

    return make


@pytest.mark.parametrize(
    ("commands", "said"),
    [
        ("echo >&2 W1128 log; echo >&2 'error: stat /none'; exit 1", "ended: stat /none"),
        ("echo >&2 cannot; exit 1", "ended: cannot"),
        ("exit 1", "ended: it did not say why"),
        (
            "echo >&2 'error: unknown flag: --as-uid'; echo >&2 'See kubectl proxy'; exit 1",
            "ended: unknown flag: --as-uid See kubectl proxy; it may be older than 1.23",
        ),
        (
            "printf 'Please enter Username: '; exec sleep infinity",
            "asks for a user name and a password",
        ),
    ],
)
def test_a_kubectl_that_does_not_serve_says_why(
    commands: str, said: str, script: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, as of a command line that is wrong."""
    script(commands)
    assert main(["list"]) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1, text
    assert text.startswith("kubectl npu: kubectl ")
    assert said in text


def test_a_kubectl_that_hangs_is_not_waited_for(
    script: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As one whose files are on a disk that does not answer."""
    monkeypatch.setattr(kubectl, "_START_SECONDS", 0.1)
    script("exec sleep infinity")
    assert main(["list"]) == 2
    assert capsys.readouterr().err == "kubectl npu: kubectl proxy does not serve after 0.1 s\n"


def test_flags_are_passed_on(
    script: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In their order, as they are; they do not start kubectl where the command line is wrong."""
    script(f'printf "%s\\n" "$@" >{tmp_path}/words; exit 1')
    words = ("--as={me}", "--as-group=a", "--as-group=b c", "--insecure-skip-tls-verify")
    assert main(["list", *words, "--server", "https://h/k8s"]) == 2
    *_, socket, one, two, three, four, five = (tmp_path / "words").read_text().splitlines()
    assert (one, two, three, four, five) == (*words, "--server=https://h/k8s")
    assert socket.startswith("--unix-socket=/")

    (tmp_path / "words").unlink()
    assert main(["list", "name", "--context=a"]) == 2
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--context NAME" in capsys.readouterr().out
    assert not (tmp_path / "words").exists()


async def test_a_plugin_may_ask_a_person(
    script: Callable[[str], None], typed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """On standard error, at once and without the log of kubectl; it reads our standard input."""
    script(
        "echo Starting to serve; printf 'Code: ' >&2; read -r code\n"
        "printf 'not %s\\nE1128 20:40 a.go:1] refused\\n\\nlog\\n' $code >&2; exec sleep infinity"
    )
    said: list[str] = []

    def has_said(end: str) -> bool:
        said.append(capfd.readouterr().err)
        return "".join(said).endswith(end)

    with trio.fail_after(HANG_SECONDS):
        async with kubectl.open_cluster(asked()):
            await until(lambda: has_said("Code: "))
            os.write(typed, b"1234\n")
            await until(lambda: has_said("not 1234\n"))
    assert "".join(said) == "Code: not 1234\n"


def test_a_shell_that_completes_is_asked_nothing(
    script: Callable[[str], None], typed: int, tmp_path: Path
) -> None:
    """A credential plugin finds its standard input at its end."""
    script(f"read -r code && touch {tmp_path}/read; exit 1")
    os.write(typed, b"1234\n")
    assert npu_completion.main(["node", ""]) == 0
    assert not (tmp_path / "read").exists()


@pytest.fixture
def typed() -> Iterator[int]:
    """What is written there comes from our standard input."""
    reading, writing = os.pipe()
    with standard_input(writing, reading) as outer:
        yield outer


@pytest.fixture
def _no_kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("_no_kubectl")
@pytest.mark.parametrize(
    ("words", "host", "said"),
    [
        ((), "", "there is no kubectl in $PATH, which logs in to the cluster: install it"),
        (("--context=a",), "127.0.0.1", "there is no kubectl in $PATH, which "),
        ((), "127.0.0.1", "the service account's CA: cannot read "),
    ],
)
def test_a_pod_without_kubectl_has_its_account(
    words: tuple[str, ...],
    host: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unless flags are for kubectl; elsewhere kubectl must be installed."""
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    assert main(["list", *words]) == 2
    assert capsys.readouterr().err.startswith(f"kubectl npu: {said}")
