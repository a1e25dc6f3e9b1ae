"""The short version of `just stress`."""

from __future__ import annotations

from pathlib import Path

from dev.grpc.stress import stress


async def test_calls_at_random_leave_nothing_behind(tmp_path: Path) -> None:
    """Every call ends, with its own answer; no task, timer or descriptor stays."""
    figures = await stress(300, 1, tmp_path)
    assert figures.ends.total() >= 300
    assert figures.ends["answered"] > 0
    assert len(figures.stops) > 1
    assert not figures.left
