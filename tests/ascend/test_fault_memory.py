"""What is remembered of faults over a restart, on real files."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from dev.rig.waiting import HANG_SECONDS
from tests import foreign
from tests.ascend.unhealthy_chip import UNHEALTHY, npu
from trio_npu_dra.ascend.code_memory import CodeMemory
from trio_npu_dra.ascend.fault_file import FaultFile, FaultHistory
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base.errors import StorageError


async def test_faults_belong_to_the_chip_not_to_its_place(tmp_path: Path) -> None:
    """A card that was replaced starts anew."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.save()
    again = NodeFaults(tmp_path)
    assert again.of(npu()).health(100.0).faults
    assert not again.of(npu("DIE-1")).health(100.0).faults


async def test_a_chip_that_does_not_tell_its_die_id_is_the_last_one_in_its_place(
    tmp_path: Path,
) -> None:
    """What was known of it is not forgotten for that, not over a restart either."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    assert faults.of(npu(None)) is faults.of(npu())
    faults.save()
    again = NodeFaults(tmp_path)
    assert again.is_saved
    assert again.of(npu(None)).health(100.0).faults
    again.of(npu("DIE-1"))
    assert not again.of(npu(None)).health(100.0).faults


async def test_a_chip_that_was_known_by_its_place_does_not_replace_one_that_was_known_by_name(
    tmp_path: Path,
) -> None:
    """What is known of the die id stays, also when its card has moved and tells it late."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.of(replace(npu(None), physical_id=1))
    assert faults.of(replace(npu(), physical_id=1)).health(100.0).faults


async def test_a_chip_that_tells_its_die_id_late_brings_its_faults_along(tmp_path: Path) -> None:
    """It is the chip that was known by its name."""
    faults = NodeFaults(tmp_path)
    faults.of(npu(None)).take(UNHEALTHY, 100.0)
    assert faults.of(npu()).health(100.0).faults
    faults.save()
    assert set(json.loads((tmp_path / "faults.json").read_text())["chips"]) == {"DIE-0"}


async def test_a_card_that_moved_is_not_thought_to_be_in_its_old_place(tmp_path: Path) -> None:
    """Two chips never share what is known of one."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    moved = replace(npu(), physical_id=1)
    assert faults.of(moved).health(100.0).faults
    assert faults.of(npu(None)) is not faults.of(moved)


async def test_whoever_waits_for_a_release_is_told_of_it_once() -> None:
    """One that took nothing back is none."""
    faults = NodeFaults(None, clock=lambda: 130.0)
    for at in (100.0, 120.0):
        faults.of(npu()).take(UNHEALTHY, at)
        faults.of(npu()).take(HealthSample(), at + 10)
    assert faults.release(npu())
    with trio.fail_after(HANG_SECONDS):
        await faults.wait_released()
    assert not faults.release(npu())
    told: list[None] = []

    async def wait() -> None:
        await faults.wait_released()
        told.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert told == []
        nursery.cancel_scope.cancel()


async def test_equal_facts_are_no_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that says it all is left alone, also by the next daemon; the first finds none."""
    assert NodeFaults(tmp_path).is_saved
    assert not caplog.records
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.save()
    assert NodeFaults(tmp_path).is_saved
    (tmp_path / "faults.json").unlink()
    faults.of(npu()).take(UNHEALTHY, 200.0)
    faults.save()
    await faults.save_apart()
    assert not (tmp_path / "faults.json").exists()


async def test_there_is_nothing_to_save_of_chips_that_are_well_nor_without_a_folder(
    tmp_path: Path,
) -> None:
    """The watcher would be kept busy by it."""
    nowhere, faults = NodeFaults(None), NodeFaults(tmp_path)
    nowhere.of(npu()).take(UNHEALTHY, 100.0)
    faults.of(npu()).take(HealthSample(), 100.0)
    assert nowhere.is_saved
    assert faults.is_saved


async def test_the_file_is_readable_for_people_and_root_only(tmp_path: Path) -> None:
    """Codes in hex; mode 0600."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.save()
    file = tmp_path / "faults.json"
    assert json.loads(file.read_text())["chips"] == {
        "DIE-0": {"80E01801": {"since": 100.0, "text": "words", "occurred": [100.0]}}
    }
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"chips": {"a": {"XYZ": {}}}}', '{"chips": 1}', '{"chips": ' + "[" * 500_000],
    ids=["empty", "cut", "code", "number", "deep"],
)
async def test_a_broken_file_costs_the_memory_and_nothing_else(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is shouted about, and replaced by the next write."""
    (tmp_path / "faults.json").write_text(content)
    faults = NodeFaults(tmp_path)
    assert "cannot read the history of faults" in caplog.text
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.save()
    assert NodeFaults(tmp_path).of(npu()).health(100.0).faults


@pytest.mark.parametrize(
    "codes",
    [
        '{"80E01801": {"since": 1.7e12}}',
        '{"80E01801": {"since": -1e20}}',
        '{"80E01801": {"occurred": [NaN]}}',
        '{"80E01801": {"separated": Infinity}}',
        '{"-1": {"since": 1.0}}',
        '{"1000000000": {"since": 1.0}}',
        "5",
    ],
)
async def test_a_chip_whose_memory_makes_no_sense_costs_no_other(
    tmp_path: Path, codes: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as times that are no dates, which nobody could be told; the log names the chip."""
    good = '{"80E01801": {"since": 1.0, "separated": 1.0}}'
    (tmp_path / "faults.json").write_text(f'{{"chips": {{"DIE-1": {codes}, "DIE-0": {good}}}}}')
    faults = NodeFaults(tmp_path)
    assert not faults.of(npu("DIE-1")).memory
    assert faults.of(npu()).health(2.0).level is FaultLevel.MANUALLY_SEPARATE_NPU
    (line,) = caplog.records
    assert vars(line)["chip"] == "DIE-1"


async def test_a_disk_that_fails_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults are judged without the file too."""
    folder = tmp_path / "later"
    faults = NodeFaults(folder)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    for _ in range(2):
        faults.save()
        assert caplog.text.count("faults are not remembered") == 1
    folder.mkdir()
    faults.save()
    assert faults.is_saved


async def test_a_newer_daemons_fields_do_no_harm(tmp_path: Path) -> None:
    """After a downgrade what is known is read."""
    file = tmp_path / "faults.json"
    file.write_text(
        '{"version": 2, "more": 1, "chips": {"DIE-0": {"80E01801": {"since": 1.0, "new": 2}}}}'
    )
    assert NodeFaults(tmp_path).of(npu()).health(2.0).faults[0].since == 1.0


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    """Deaths do not fill the folder; other files stay."""
    (tmp_path / ".faults.json.5f3a01c2").write_bytes(b"{")
    (tmp_path / ".others").write_bytes(b"")
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)

    faults.save()

    assert {path.name for path in tmp_path.iterdir()} == {
        "faults.json",
        "faults.lock",
        ".others",
    }


@pytest.mark.parametrize(
    ("chips", "codes", "words"),
    [
        (1025, 1, "1025 chips, at most 1024"),
        (200, 100, "20000 codes, at most 16384"),
        (1, 140_000, "140002 names, at most 131072"),
    ],
)
def test_more_than_a_node_can_have_is_neither_read_nor_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, chips: int, codes: int, words: str
) -> None:
    """A start has not the memory for it; what is written can be read."""
    memory = CodeMemory(since=1.0)
    many = {
        f"DIE-{chip}": dict.fromkeys(range(1, codes + 1), memory if codes < 1000 else CodeMemory())
        for chip in range(chips)
    }
    document = {
        key: {f"{code:08X}": known.model_dump(exclude_defaults=True) for code, known in of.items()}
        for key, of in many.items()
    }
    (tmp_path / "faults.json").write_text(json.dumps({"chips": document}))

    assert FaultFile(tmp_path, None).load() == FaultHistory()
    assert words in vars(caplog.records[0])["error"]

    with pytest.raises(StorageError, match=r"faults\.json has .*, at most"):
        FaultFile(tmp_path, None).exchange(FaultHistory(chips=many), FaultHistory(), now=2.0)


@pytest.mark.parametrize("kind", [*foreign.KINDS, "huge"])
async def test_something_foreign_costs_the_memory_and_gives_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Nothing is read or written through a link, and nothing waited for."""
    file = tmp_path / "faults.json"
    if kind == "huge":
        file.touch()
        os.truncate(file, 9 << 20)
    else:
        foreign.put(kind, file)

    faults = NodeFaults(tmp_path)
    assert "cannot read the history of faults" in caplog.text
    faults.of(npu()).take(UNHEALTHY, 100.0)
    faults.save()

    assert NodeFaults(tmp_path).of(npu()).health(100.0).faults


def test_a_file_that_another_instance_is_writing_is_left_to_it(tmp_path: Path) -> None:
    """In a rolling update both write."""
    faults = NodeFaults(tmp_path)
    faults.of(npu()).take(UNHEALTHY, 100.0)
    with (tmp_path / ".faults.json.5f3a01c2").open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        faults.save()

    assert {path.name for path in tmp_path.iterdir()} == {
        "faults.json",
        "faults.lock",
        ".faults.json.5f3a01c2",
    }
