"""The history of faults of two instances in one file, and after the clock was set."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
import trio
import trio.testing

from dev.rig.waiting import HANG_SECONDS
from tests.ascend.unhealthy_chip import UNHEALTHY, npu, separate
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import Chip, FaultLevel
from trio_npu_dra.kit.base.boot import SteadyClock

OTHER = HealthSample(codes={0x81B38002: "other"})


def level(faults: NodeFaults, chip: Chip) -> FaultLevel:
    """How bad a chip is."""
    return faults.of(chip).health(2000.0).level


def both(folder: Path, *, now: float = 1000.0) -> tuple[NodeFaults, NodeFaults]:
    """Two instances that started when chip 0 was separated."""
    first = NodeFaults(folder, clock=lambda: now)
    separate(first, npu())
    first.save()
    return first, NodeFaults(folder, clock=lambda: now)


@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_release_by_one_instance_is_not_undone_by_the_other(
    tmp_path: Path, is_changed: bool
) -> None:
    """Whatever the other one saves then, of that chip or another; it takes over the release."""
    old, new = both(tmp_path)
    assert new.release(npu())
    new.save()

    old.of(npu("DIE-1")).take_confirmed(OTHER, 1000.0)
    if is_changed:
        old.of(npu()).take_confirmed(OTHER, 1000.0)
    await old.save_apart()

    with trio.fail_after(HANG_SECONDS):
        await old.wait_released()
    assert level(old, npu()) is not FaultLevel.MANUALLY_SEPARATE_NPU
    old.save()
    new.save()
    again = NodeFaults(tmp_path)
    assert level(again, npu()) is not FaultLevel.MANUALLY_SEPARATE_NPU
    assert again.of(npu("DIE-1")).health(1000.0).faults


async def test_the_file_keeps_what_both_learn_of_different_chips_and_codes(tmp_path: Path) -> None:
    """Whichever saves last."""
    old, new = both(tmp_path)
    old.of(npu("DIE-1")).take_confirmed(OTHER, 1000.0)
    new.of(npu("DIE-2")).take_confirmed(OTHER, 1000.0)
    new.of(npu()).take_confirmed(OTHER, 1000.0)
    new.save()
    old.save()

    again = NodeFaults(tmp_path)
    assert all(again.of(npu(die)).memory for die in ("DIE-0", "DIE-1", "DIE-2"))
    assert 0x81B38002 in again.of(npu()).memory
    assert level(again, npu()) is FaultLevel.MANUALLY_SEPARATE_NPU


async def test_the_newer_release_wins_and_a_later_separation_stands(tmp_path: Path) -> None:
    """A release does not undo rules that applied after it."""
    old, new = both(tmp_path)
    assert new.release(npu())
    new.save()
    separate(old, npu(), 1100.0)
    assert old.release(npu())  # as people saw it there
    old.now = lambda: 1300.0
    separate(old, npu(), 1400.0)
    old.save()

    assert level(NodeFaults(tmp_path), npu()) is FaultLevel.MANUALLY_SEPARATE_NPU


async def test_a_release_in_the_future_is_none(tmp_path: Path) -> None:
    """A wrong clock wrote it; else nothing would count until then."""
    _, new = both(tmp_path, now=9e9)
    assert new.release(npu())
    new.save()
    later = NodeFaults(tmp_path, clock=lambda: 3300.0)
    separate(later, npu(), 3100.0)
    later.save()
    assert level(NodeFaults(tmp_path), npu()) is FaultLevel.MANUALLY_SEPARATE_NPU


HOURS_47 = 47 * 3600.0
LINK_DOWN = HealthSample(codes={0x81078603: "link down"})


def on_a_clock_set_by(folder: Path, seconds: float, *, running: float) -> NodeFaults:
    """The faults as a daemon knows them that starts after the clock was set."""
    clock = SteadyClock(
        wall=lambda: 1e9 + seconds + running, running=lambda: running, boot_id="this boot"
    )
    return NodeFaults(folder, clock=clock, boot=clock.boot)


@pytest.mark.parametrize("seconds", [1e8, -1e8])
async def test_a_separation_lasts_as_long_when_the_clock_is_set(
    tmp_path: Path, seconds: float
) -> None:
    """By the node's clock it would end immediately, or begin only now."""
    faults = on_a_clock_set_by(tmp_path, 0.0, running=0.0)
    for at in range(5):
        faults.of(npu()).take_confirmed(LINK_DOWN, 1e9 + 200 * at)
        faults.of(npu()).take_confirmed(HealthSample(), 1e9 + 200 * at + 50)
    faults.save()
    separated = faults.of(npu()).memory[0x81078603].separated
    assert separated is not None

    later = on_a_clock_set_by(tmp_path, seconds, running=HOURS_47)
    assert later.of(npu()).memory[0x81078603].separated == separated + seconds
    assert later.of(npu()).health(later.now()).level is FaultLevel.MANUALLY_SEPARATE_NPU
    assert later.of(npu()).health(later.now() + 7200).level is not (
        FaultLevel.MANUALLY_SEPARATE_NPU
    )


async def test_a_save_waits_for_the_other_instances_turn(tmp_path: Path) -> None:
    """For a moment: an unsaved change is tried again."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take_confirmed(UNHEALTHY, 100.0)
    with (tmp_path / "faults.lock").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(faults.save_apart)
            await trio.sleep(0.01)
            assert not faults.is_saved
            fcntl.flock(other, fcntl.LOCK_UN)
    assert faults.is_saved


@pytest.mark.parametrize("released", ["5", '{"DIE-0": "x"}', '{"DIE-0": -1}', '{"DIE-0": 1e30}'])
async def test_a_release_that_makes_no_sense_is_none(tmp_path: Path, released: str) -> None:
    """It costs nothing else, unless the file is no such file at all."""
    known = '{"DIE-0": {"80E01801": {"since": 1.0, "separated": 1.0}}}'
    (tmp_path / "faults.json").write_text(f'{{"chips": {known}, "released": {released}}}')
    faults = NodeFaults(tmp_path, clock=lambda: 10.0)
    is_file = released != "5"
    assert (level(faults, npu()) is FaultLevel.MANUALLY_SEPARATE_NPU) == is_file
    faults.of(npu("DIE-1")).take_confirmed(UNHEALTHY, 10.0)
    faults.save()
    assert faults.is_saved
