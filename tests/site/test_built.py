"""The look at a built site notices what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from dev.site.built import problems

GOOD = '<a href="b/c.html#place">c</a> <a href="https://example.com/">e</a> <img src="p.svg">'


def test_problems_of_a_site(tmp_path: Path) -> None:
    """Dead links, dead anchors and what is loaded from another host, and nothing else."""
    (tmp_path / "b").mkdir()
    (tmp_path / "p.svg").touch()
    (tmp_path / "b/c.html").write_text('<h1 id="place">C</h1><a href="../a.html">a</a>')
    (tmp_path / "a.html").write_text(GOOD)
    assert problems(tmp_path) == []

    wrong = (
        '<a href="none.html">n</a> <a href="b/c.html#no">c</a> <script src="https://e.com/x.js">'
    )
    (tmp_path / "a.html").write_text(GOOD + wrong)
    assert problems(tmp_path) == [
        "a.html: none.html leads nowhere",
        "a.html: b/c.html#no has no such place",
        "a.html loads https://e.com/x.js from another host",
    ]
