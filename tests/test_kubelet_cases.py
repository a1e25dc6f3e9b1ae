"""docs/kubelet-cases.md names tests that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs/kubelet-cases.md"


def test_each_scenario_has_its_test() -> None:
    """Every row of the table has a test of `tests/e2e`."""
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!scenario)(.+) \| (.+) \|$", page, re.MULTILINE)
    sources = "".join(path.read_text(encoding="utf-8") for path in (HERE / "e2e").glob("test_*.py"))
    assert rows
    for scenario, tests in rows:
        names = re.findall(r"`(test_\w+)`", tests)
        assert names, scenario
        assert [name for name in names if f"def {name}(" not in sources] == []
