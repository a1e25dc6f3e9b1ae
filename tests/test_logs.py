"""Log lines for machines and for people."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from trio_npu_dra.kit.base import logs
from trio_npu_dra.kit.base.log_thread import LIMIT, ThreadedStream


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


@pytest.mark.parametrize("is_blocking", [True, False])
def test_what_nobody_reads_is_dropped_and_counted(*, is_blocking: bool) -> None:
    """No line waits for a reader; one who comes back gets what waited, how many are missing, more.

    Nor does the end of the process wait for ever.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, is_blocking)
    stream = ThreadedStream(writer)
    logs.configure("info", "json", stream)
    said = 2 * LIMIT // 1000
    for number in range(said):
        logging.getLogger("x").info("%d", number, extra={"padding": "x" * 1000})
    stream.drain(seconds=0)

    with os.fdopen(reader, encoding="utf-8") as log:
        lines = map(json.loads, log)
        read = []
        for line in lines:
            if "dropped" in line["message"]:
                break
            read.append(int(line["message"]))
        assert read == list(range(len(read)))
        assert len(read) + line["lines"] == said
        assert len(read) > 0.8 * LIMIT / 1200
        logging.getLogger("x").info("again")
        assert next(lines)["message"] == "again"
        stream.drain()


def test_without_standard_error_no_line_goes_to_the_file_that_gets_its_number(
    tmp_path: Path,
) -> None:
    """A service manager may close it."""
    other = tmp_path / "record"
    program = f"""
import logging
from trio_npu_dra.kit.base import log_thread, logs
with open({str(other)!r}, "w") as file:
    assert file.fileno() == 2
    logs.configure("info", "auto", log_thread.standard_error())
    logging.info("a line")
"""
    subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, program], check=True)
    assert other.read_text() == ""
