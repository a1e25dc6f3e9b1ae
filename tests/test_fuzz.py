"""The promises of `just fuzz`, in a short run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dev.fuzz.__main__ import TARGETS
from dev.fuzz.timed import Timed

DOCS = Path(__file__).parents[1] / "docs" / "fuzzing.md"


def test_a_broken_property_gives_a_line_to_paste() -> None:
    """The line has the last example of each way to break it, without fixtures; each run counts."""

    def inner(server: object, data: bytes) -> None:
        assert server is not None
        assert len(data) < 3

    handle = SimpleNamespace(inner_test=inner)
    timed = Timed(1.0)
    broken = timed.watch(handle, {"server"})
    for data in (b"ab", b"abcd", b"abc"):
        if len(data) < 3:
            handle.inner_test(server=1, data=data)
        else:
            with pytest.raises(AssertionError):
                handle.inner_test(server=1, data=data)
    (finding,) = broken.values()
    assert finding.endswith("\n@example(data=b'abc')")
    assert finding.startswith("inner: AssertionError")
    assert timed.runs == 3


def test_each_target_is_documented() -> None:
    """The page has its input and its findings."""
    lines = DOCS.read_text().splitlines()
    for target in TARGETS:
        assert sum(line.startswith(f"| `{target}` |") for line in lines) == 2
