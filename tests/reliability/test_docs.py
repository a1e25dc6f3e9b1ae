"""docs/reliability.md says at which system calls, and at which points of ours, the daemon dies."""

import re
from pathlib import Path

from tests.reliability.points import KINDS
from trio_npu_dra.crashpoints import VARIABLE, Point

PAGE = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")


def test_the_page_has_each_kind_of_system_call() -> None:
    """By the words in which a failure of the matrix names it."""
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == KINDS


def test_the_page_has_each_crash_point_and_no_other() -> None:
    """In the order of the code."""
    assert re.findall(r"^\| `([a-z-]+\.[a-z-]+)` \|", PAGE, re.MULTILINE) == list(Point)
    assert f"`{VARIABLE}=<point>[:<n>]`" in PAGE
