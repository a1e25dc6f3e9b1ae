"""Log lines for machines and for people."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Literal

import pytest

from trio_npu_dra.kit.base import logs


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_the_extra_fields() -> None:
    """Each line is one object, with the variable parts as fields."""
    stream = io.StringIO()
    logs.configure("info", "auto", stream)

    logging.getLogger("x").info("claim prepared", extra={"devices": ["npu-0"], "ms": 1.5})

    line = json.loads(stream.getvalue())
    assert line["message"] == "claim prepared"
    assert line["level"] == "info"
    assert line["devices"] == ["npu-0"]
    assert line["ms"] == 1.5


def test_text_lines_are_one_line_with_fields_behind_the_message() -> None:
    """The lines are readable on a terminal."""
    stream = io.StringIO()
    logs.configure("info", "text", stream)

    logging.getLogger("x").warning("slice repaired", extra={"slice": "a", "devices": ["b", "c"]})

    assert stream.getvalue().endswith("warning slice repaired  slice=a devices=b,c\n")


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_others_wrote_shows_as_it_is(form: Literal["json", "text"]) -> None:
    """Lines end up on terminals, those of pods by `kubectl logs`; JSON has the same meaning."""
    stream = io.StringIO()
    logs.configure("info", form, stream)
    foreign = "a\x9b2J\u202eb\nc"

    logging.getLogger("x").warning(
        "claim refused: %s", foreign, extra={"claim": foreign}, exc_info=ValueError(foreign)
    )

    first, *rest = stream.getvalue().splitlines()
    if form == "json":
        assert rest == []
        assert json.loads(first)["claim"] == foreign
    shown = first if form == "json" else rest[-2]
    assert "claim" in first
    assert first.count(r"a\u009b2J\u202eb\nc") >= 2
    assert r"a\u009b2J\u202eb" in shown
    assert all(line.isprintable() for line in (first, *rest))
