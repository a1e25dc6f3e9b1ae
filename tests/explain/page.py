"""Writes the outputs of docs/kubectl-npu.md anew: `python -m tests.explain.page`."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

from tests.explain.reasons import REASONS
from tests.explain.scene import scene
from tests.explain.static_api import StaticApi, served
from trio_npu_dra.cli.kubectl_npu import main
from trio_npu_dra.cli.npu_words import explanation_lines

PAGE = Path(__file__).parents[2] / "docs/kubectl-npu.md"
_BLOCK = re.compile(r"(```console\n\$ kubectl npu(?: (?P<words>[^\n]*))?\n).*?(```\n)", re.DOTALL)
_TABLE = re.compile(r"(<!-- reasons -->\n).*?(<!-- end of reasons -->\n)", re.DOTALL)


def printed(words: str) -> str:
    """What a command prints about the scene."""
    output = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as name,
        served(StaticApi(scene()), Path(name)) as kubeconfig,
        redirect_stdout(output),
    ):
        status = main([*words.split(), "--kubeconfig", str(kubeconfig)])
    assert status == 0
    return output.getvalue()


def reasons_table() -> Iterator[str]:
    """A row for each reason to wait."""
    yield "| reason | what `kubectl npu explain train` says first |"
    yield "|---|---|"
    for reason in REASONS:
        sentence = next(explanation_lines(reason.explained()))
        yield f"| {reason.title} | {sentence.replace('|', chr(92) + '|')} |"


def with_outputs(page: str) -> str:
    """The page with all outputs as they are now."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{printed(match['words'] or '')}{match[3]}"

    table = "\n".join(reasons_table())
    page = _BLOCK.sub(block, page)
    return _TABLE.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_outputs(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
