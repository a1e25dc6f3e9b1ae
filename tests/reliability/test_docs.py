"""docs/reliability.md says of each point what a death there leaves."""

import re
from pathlib import Path

from tests.reliability.crashes import CRASHES
from trio_npu_dra.crashpoints import VARIABLE, Point

PAGE = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")


def test_the_page_has_each_crash_point_and_no_other() -> None:
    """In the order of the code."""
    assert re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE) == list(Point)
    assert f"`{VARIABLE}=<point>[:<n>]`" in PAGE


def test_the_page_has_each_other_death_of_the_matrix() -> None:
    """Those that no point of ours brings about."""
    others = [crash.at for crash in CRASHES if crash.point is None]
    assert re.findall(r"^\| (\w+ accepted, no answer) \|", PAGE, re.MULTILINE) == others
