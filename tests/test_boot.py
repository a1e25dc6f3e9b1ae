"""A clock that nobody sets, and boots that tell by how much one was set."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_npu_dra.kit.base.boot import Boot, SteadyClock, read_boot_id


def test_the_clock_goes_on_when_somebody_sets_the_nodes() -> None:
    """It says what the node's clock said first, and how long that is ago."""
    wall, running = 1e9, 50.0
    clock = SteadyClock(wall=lambda: wall, running=lambda: running, boot_id="one")
    assert (clock(), clock.boot) == (1e9, Boot(id="one", began=1e9 - 50))
    wall, running = 2e9, 60.0
    assert clock() == 1e9 + 10


def test_the_clock_of_this_node_says_what_time_it_is() -> None:
    """With the kernel's clocks and id."""
    clock = SteadyClock()
    before = clock()
    assert 1.7e9 < before <= clock()
    assert clock.boot.id == read_boot_id()


def test_a_node_that_does_not_tell_its_boot_has_no_id(tmp_path: Path) -> None:
    """It is nobody's other boot."""
    assert read_boot_id(tmp_path / "boot_id") == ""


@pytest.mark.parametrize(
    ("earlier", "seconds"),
    [
        (Boot(id="one", began=400.0), 600.0),
        (Boot(id="one", began=4000.0), -3000.0),
        (Boot(id="one", began=999.0), 0.0),
        (Boot(id="other", began=400.0), 0.0),
    ],
)
def test_how_far_a_clock_was_set_is_known_within_a_boot(earlier: Boot, seconds: float) -> None:
    """Slewing by some seconds is no setting."""
    assert Boot(id="one", began=1000.0).set_since(earlier) == seconds


def test_boots_without_an_id_tell_nothing() -> None:
    """They may be two."""
    assert Boot(id="", began=1000.0).set_since(Boot(id="", began=0.0)) == 0.0
