"""The history of faults over a restart, on real files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests import foreign
from tests.ascend.unhealthy_chip import UNHEALTHY, npu, separate
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base.boot import SteadyClock


@pytest.fixture
def faults(tmp_path: Path) -> NodeFaults:
    """The faults of a node whose chip 0 is unhealthy, not saved yet."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take_confirmed(UNHEALTHY, 100.0)
    return faults


def has_faults(faults: NodeFaults, uuid: str | None = "DIE-0", number: int = 0) -> bool:
    """Whether a chip with this die id, in this place, has faults."""
    return bool(faults.of(replace(npu(uuid), physical_id=number)).health(100.0).faults)


# --- which chip has them -------------------------------------------------------------------------


async def test_faults_belong_to_the_chip_not_to_its_place(
    tmp_path: Path, faults: NodeFaults
) -> None:
    """A card that replaces another one has none; a chip without a die id is the last in its place.

    That holds after a restart too.
    """
    assert faults.of(npu(None)) is faults.of(npu())
    faults.save()
    again = NodeFaults(tmp_path)
    assert again.is_saved
    assert has_faults(again, None)
    assert has_faults(again)
    assert not has_faults(again, "DIE-1")
    assert not has_faults(again, None)


async def test_a_card_that_moved_takes_its_faults_along(faults: NodeFaults) -> None:
    """Also if it tells its die id late; two chips never share one history."""
    assert not has_faults(faults, None, number=1)
    assert has_faults(faults, number=1)
    assert not has_faults(faults, None)


async def test_a_chip_that_tells_its_die_id_late_brings_its_faults_along(tmp_path: Path) -> None:
    """It is the chip that was known by its name."""
    faults = NodeFaults(tmp_path)
    faults.of(npu(None)).take_confirmed(UNHEALTHY, 100.0)
    assert has_faults(faults)
    faults.save()
    assert set(json.loads((tmp_path / "faults.json").read_text())["chips"]) == {"DIE-0"}


def test_a_release_is_told_if_it_released_something() -> None:
    """A release of a chip that no rule has separated tells nobody."""
    told: list[None] = []
    faults = NodeFaults(None, clock=lambda: 130.0)
    faults.on_release = lambda: told.append(None)
    separate(faults, npu())
    assert faults.release(npu())
    assert not faults.release(npu())
    assert len(told) == 1


# --- writing -------------------------------------------------------------------------------------


async def test_only_news_are_written(
    tmp_path: Path, faults: NodeFaults, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither an equal history, nor healthy chips; and nothing without a folder."""
    assert not caplog.records
    faults.save()
    assert NodeFaults(tmp_path).is_saved
    (tmp_path / "faults.json").unlink()
    faults.of(npu()).take_confirmed(UNHEALTHY, 200.0)
    faults.of(replace(npu("DIE-1"), physical_id=1)).take_confirmed(HealthSample(), 200.0)
    faults.save()
    await faults.save_apart()
    assert not (tmp_path / "faults.json").exists()
    nowhere = NodeFaults(None)
    nowhere.of(npu()).take_confirmed(UNHEALTHY, 100.0)
    assert nowhere.is_saved


async def test_the_file_is_readable_for_people_and_root_only(
    tmp_path: Path, faults: NodeFaults
) -> None:
    """Codes in hex; mode 0600."""
    faults.save()
    file = tmp_path / "faults.json"
    assert json.loads(file.read_text())["chips"] == {
        "DIE-0": {"80E01801": {"since": 100.0, "text": "words", "occurred": [100.0]}}
    }
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_disk_that_fails_is_logged_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults are judged without the file too."""
    folder = tmp_path / "later"
    faults = NodeFaults(folder)
    faults.of(npu()).take_confirmed(UNHEALTHY, 100.0)
    for _ in range(2):
        faults.save()
        assert len(caplog.records) == 1
    folder.mkdir()
    faults.save()
    assert faults.is_saved


def test_a_write_removes_what_a_killed_writer_left(tmp_path: Path, faults: NodeFaults) -> None:
    """But no other file."""
    (tmp_path / ".faults.json.5f3a01c2").write_bytes(b"{")
    (tmp_path / ".others").write_bytes(b"")
    faults.save()
    assert {path.name for path in tmp_path.iterdir()} == {"faults.json", ".others"}


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codes", ['{"80E01801": {"since": 1.7e12}}', '{"1000000000": {"since": 1.0}}', "5"]
)
async def test_a_chip_whose_memory_makes_no_sense_costs_no_other(
    tmp_path: Path, codes: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as times that are no dates; the log names the chip once."""
    good = '{"80E01801": {"since": 1.0, "separated": 1.0}}'
    (tmp_path / "faults.json").write_text(f'{{"chips": {{"DIE-1": {codes}, "DIE-0": {good}}}}}')
    faults = NodeFaults(tmp_path)
    assert not faults.of(npu("DIE-1")).memory
    assert faults.of(npu()).health(2.0).level is FaultLevel.MANUALLY_SEPARATE_NPU
    faults.of(npu("DIE-2")).take_confirmed(UNHEALTHY, 100.0)
    faults.save()
    assert faults.is_saved
    (line,) = caplog.records
    assert vars(line)["chip"] == "DIE-1"


async def test_a_newer_daemons_fields_do_no_harm(tmp_path: Path) -> None:
    """After a downgrade the known part is read."""
    (tmp_path / "faults.json").write_text(
        '{"version": 2, "more": 1, "chips": {"DIE-0": {"80E01801": {"since": 1.0, "new": 2}}}}'
    )
    assert NodeFaults(tmp_path).of(npu()).health(2.0).faults[0].since == 1.0


@pytest.mark.parametrize("kind", [*foreign.KINDS, "huge", "deep"])
async def test_something_foreign_costs_the_memory_and_gives_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """It is logged; nothing is read or written through a link, and nothing waited for."""
    file = tmp_path / "faults.json"
    if kind == "huge":
        file.touch()
        os.truncate(file, 9 << 20)
    elif kind == "deep":
        file.write_text('{"chips": ' + "[" * 500_000)
    else:
        foreign.put(kind, file)

    faults = NodeFaults(tmp_path)
    assert [vars(line)["file"] for line in caplog.records] == [str(file)]
    faults.of(npu()).take_confirmed(UNHEALTHY, 100.0)
    faults.save()

    assert has_faults(NodeFaults(tmp_path))


# --- the clock -----------------------------------------------------------------------------------


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
