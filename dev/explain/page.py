"""Renews what pages show of `kubectl npu`: `python -m dev.explain.page`."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from dev.explain.reasons import REASONS
from dev.explain.scene import scene, super_pods
from dev.explain.static_api import StaticApi, served
from trio_npu_dra.tools.cli.kubectl_npu import main
from trio_npu_dra.tools.cli.npu_words import explanation_lines
from trio_npu_dra.tools.cli.table import plain

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGES: Final = ("kubectl-npu.md", "guides/pending.md", "guides/unhealthy.md")
"""Those with outputs of the command."""
PICTURES: Final = {
    "kubectl-npu": (100, ("", "explain large")),
    "kubectl-npu-unhealthy": (100, ("why-unhealthy n2/npu-3",)),
}
"""Terminals by the names of their files in docs/assets: their columns, and commands."""
_TERMINAL: Final = {"FORCE_COLOR": "1", "NO_COLOR": "", "TERM": "xterm"}
_SVG: Final = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace; }}
.terminal {{ fill: #fff; stroke: #bbb }}
{styles}
@media (prefers-color-scheme: dark) {{
.terminal {{ fill: #0d1117; stroke: #555 }}
dark styles
}}
</style>
<rect class="terminal" width="100%" height="100%" rx="8"/>
<g transform="translate(9, 9)" class="{unique_id}-matrix">
{backgrounds}{matrix}
</g>
</svg>
"""
"""Without the window and the fonts of the web that rich puts around it."""
_YELLOW: Final = ("#808000", "#6a6a00")
"""That of the light theme, which is too pale on white, and one that is read (WCAG 2, AA)."""
_UNUSED = re.compile(r' clip-path="[^"]*"|<text [^>]*>\n</text>')
"""References to what is left out, and the ends of lines."""
_BLOCK = re.compile(r"(```console\n\$ kubectl npu(?: (?P<words>[^\n]*))?\n).*?(```\n)", re.DOTALL)
_TABLE = re.compile(r"(<!-- reasons -->\n).*?(<!-- end of reasons -->\n)", re.DOTALL)


def printed(words: str, **environment: str) -> str:
    """What a command prints about its scene."""
    objects = super_pods() if words.startswith("explain job/") else scene()
    output = io.StringIO()
    with (
        tempfile.TemporaryDirectory() as name,
        served(StaticApi(objects), Path(name)),
        redirect_stdout(output),
        patch.dict(os.environ, environment),
    ):
        status = main(words.split())
    assert status == 0
    return output.getvalue()


def picture(name: str) -> str:
    """A terminal with some commands and what they print, as SVG."""
    columns, commands = PICTURES[name]
    console = Console(record=True, file=io.StringIO(), width=columns, highlight=False)
    for at, words in enumerate(commands):
        console.print("\n" * bool(at) + f"$ kubectl npu {words}".rstrip(), style="bold")
        console.print(Text.from_ansi(printed(words, **_TERMINAL).rstrip()))
    light = console.export_svg(
        theme=DEFAULT_TERMINAL_THEME, code_format=_SVG, unique_id=name, clear=False
    )
    dark = console.export_svg(theme=SVG_EXPORT_THEME, code_format="{styles}", unique_id=name)
    drawn = light.replace(*_YELLOW).replace("dark styles", dark)
    return _UNUSED.sub("", drawn)


def reasons_table() -> Iterator[str]:
    """A row for each reason to wait."""
    yield "| reason | code | what `kubectl npu explain train` says first |"
    yield "|---|---|---|"
    for reason in REASONS:
        explained = reason.explained()
        line = plain(next(explanation_lines(explained))).replace("|", r"\|")
        yield f"| {reason.title} | `{explained.sentence.code}` | {line} |"


def with_outputs(page: str) -> str:
    """The page with all outputs as they are now."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}{printed(match['words'] or '')}{match[3]}"

    table = "\n".join(reasons_table())
    page = _BLOCK.sub(block, page)
    return _TABLE.sub(lambda match: f"{match[1]}\n{table}\n\n{match[2]}", page)


if __name__ == "__main__":
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        (DOCS / page).write_text(with_outputs(text), encoding="utf-8")
    for file in PICTURES:
        (DOCS / f"assets/{file}.svg").write_text(picture(file), encoding="utf-8")
