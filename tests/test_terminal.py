"""Foreign text on a terminal."""

from __future__ import annotations

import io
import os

import pytest

from trio_npu_dra.kit.base.errors import ReaderGone
from trio_npu_dra.kit.base.terminal import say, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("npu-3 of n1: 32Gi, \u98a8 \u2192 \u00e9", "npu-3 of n1: 32Gi, \u98a8 \u2192 \u00e9"),
        ("\x1b[2J\x07", r"\u001b[2J\u0007"),
        ("\x9b1m\x7f", r"\u009b1m\u007f"),
        ("a\r\nclaim b: is free", r"a\r\nclaim b: is free"),
        ("a\x85b\u2028c", r"a\u0085b\u2028c"),
        ("\u202eeerf\u2066\u200f", r"\u202eeerf\u2066\u200f"),
        ("npu\u200b-\u00ad3\ufeff\u2060", r"npu\u200b-\u00ad3\ufeff\u2060"),
        ("\u3164\u034f\u2800\ufe0f", r"\u3164\u034f\u2800\ufe0f"),
        ("\U000e0041\udc80", r"\udb40\udc41\udc80"),
    ],
    ids=["plain", "escapes", "C1", "lines", "separators", "bidi", "no width", "no ink", "tags"],
)
def test_everything_shows(text: str, shown: str) -> None:
    """Nothing moves the cursor, hides, turns the text round, or begins a line."""
    assert visible(text) == shown
    assert visible(shown) == shown


def test_each_line_is_one() -> None:
    """No lines print nothing."""
    stream = io.StringIO()
    say("a", "b\nc", stream=stream)
    say(stream=stream)
    assert stream.getvalue() == "a\nb\\nc\n"


def test_a_reader_that_has_seen_enough_is_noticed() -> None:
    """And what is left does not reach the pipe when it is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe, pytest.raises(ReaderGone):
        say("a", stream=pipe)
