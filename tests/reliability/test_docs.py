"""docs/reliability.md says at which system calls the daemon dies."""

import re
from pathlib import Path

from tests.reliability.points import KINDS

PAGE = (Path(__file__).parents[2] / "docs/reliability.md").read_text(encoding="utf-8")


def test_the_page_has_each_kind_of_system_call() -> None:
    """By the name that it has in a failure of the matrix."""
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == KINDS
