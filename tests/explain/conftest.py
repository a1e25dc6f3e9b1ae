"""An API server with the scene of the page, and `kubectl npu` that asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.explain.scene import scene
from dev.explain.static_api import StaticApi, served
from trio_npu_dra.tools.cli.kubectl_npu import main


@dataclass(frozen=True)
class Cluster:
    """An API server, and the command that asks it."""

    api: StaticApi
    capsys: pytest.CaptureFixture[str]

    def run(self, *words: str) -> tuple[int, str, str]:
        """The exit status, stdout and stderr of `kubectl npu`."""
        status = main(words)
        return status, *self.capsys.readouterr()

    def data(self, *words: str) -> Any:
        """What `-o json` prints."""
        status, out, _ = self.run(*words, "-o", "json")
        assert status == 0
        return json.loads(out)

    def not_weighed(self, *words: str) -> list[str]:
        """What an answer for people does not weigh."""
        _, out, _ = self.run(*words)
        block = out.partition("\nnot weighed here\n")[2].partition("\n\n")[0]
        return [line.strip() for line in block.splitlines()]


@pytest.fixture
def cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """The scene of the page; what the caller's environment says of colours does not count."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    api = StaticApi(scene())
    with served(api, tmp_path):
        yield Cluster(api, capsys)
