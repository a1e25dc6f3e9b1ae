"""A steady clock, and how far the node's clock was set since an earlier boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_npu_dra.kit.base.boot import Boot, SteadyClock, read_boot_id


def test_the_clock_goes_on_when_an_administrator_sets_the_nodes() -> None:
    """It shows the node's time at its start, and the time since then."""
    wall, running = 1e9, 50.0
    clock = SteadyClock(wall=lambda: wall, running=lambda: running, boot_id="one")
    assert (clock(), clock.boot) == (1e9, Boot(id="one", began=1e9 - 50))
    wall, running = 2e9, 60.0
    assert clock() == 1e9 + 10


def test_the_clock_of_this_node_shows_the_time(tmp_path: Path) -> None:
    """It has the kernel's clocks and boot id; a missing id is empty."""
    clock = SteadyClock()
    before = clock()
    assert 1.7e9 < before <= clock()
    assert clock.boot.id == read_boot_id()
    assert read_boot_id(tmp_path / "boot_id") == ""


@pytest.mark.parametrize(
    ("earlier", "now", "seconds"),
    [
        (Boot(id="one", began=400.0), "one", 600.0),
        (Boot(id="one", began=4000.0), "one", -3000.0),
        (Boot(id="one", began=999.0), "one", 0.0),
        (Boot(id="other", began=400.0), "one", 0.0),
        (Boot(id="", began=400.0), "", 0.0),
    ],
    ids=["forward", "back", "slewed", "another boot", "no id"],
)
def test_how_far_a_clock_was_set_is_known_within_a_boot(
    earlier: Boot, now: str, seconds: float
) -> None:
    """Slewing by some seconds is no setting; boots without an id may be two."""
    assert Boot(id=now, began=1000.0).set_since(earlier) == seconds
