"""docs/mutants.md names tests, modules and functions that exist."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/mutants.md").read_text(encoding="utf-8")


def test_each_named_test_exists() -> None:
    """It is in the tests of some room."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (REPOSITORY / "tests").rglob("test_*.py")
    )
    names = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(names) > 10
    assert {name for name in names if f"def {name}(" not in sources} == set()


def test_each_named_place_exists() -> None:
    """The place is a module of the package, and a function or a constant in it."""
    places = re.findall(r"`([a-z_0-9/]+\.py)` `(\w+)`", PAGE)
    assert len(places) > 10
    for module, name in places:
        text = (REPOSITORY / "trio_npu_dra" / module).read_text(encoding="utf-8")
        assert re.search(rf"^( *(async )?def |){name}\b", text, re.MULTILINE), (module, name)
