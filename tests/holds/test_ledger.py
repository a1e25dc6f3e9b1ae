"""The ledger survives restarts, newer versions and broken neighbours."""

import errno
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.holds.entries import chip, entry, module, of_partition
from tests.synced import renames, syncs
from trio_npu_dra.agent.holds.entry import Entry
from trio_npu_dra.agent.holds.hold import HolderKind
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base.errors import RecordCorrupt, StorageError


async def ledger_with(folder: Path, *entries: Entry) -> Ledger:
    """A ledger whose entries are written."""
    ledger = Ledger(folder)
    async with ledger.exclusive():
        for each in entries:
            ledger.put(each)
    return ledger


async def read(folder: Path) -> Ledger:
    """The ledger of the next instance."""
    return await ledger_with(folder)


def cut_partition(uid: str) -> Entry:
    """The entry of a claim for which vNPU 100 was cut."""
    whole = of_partition(uid)
    cut = Partition(template="vir05_1c_8g", number=0, vnpu=100)
    return replace(whole, devices=(whole.devices[0]._replace(partition=cut),))


@pytest.mark.parametrize("has_boot_id", [True, False])
async def test_records_are_read_by_the_next_instance(tmp_path: Path, has_boot_id: bool) -> None:
    """One file each, with the format's version; also where the kernel tells no boot."""
    (tmp_path / "boot_id").write_text("boot\n" * has_boot_id)
    first, second = (Ledger(tmp_path, boot_id_file=tmp_path / "boot_id") for _ in range(2))
    async with first.exclusive():
        first.put(entry("uid-a"))
        first.put(entry("uid-b", 1))
    async with second.exclusive():
        assert second.by_uid == first.by_uid
    assert second.by_uid["uid-a"].boot_id == "boot" * has_boot_id
    wire = json.loads((tmp_path / "claims/uid-a.json").read_bytes())
    assert wire["version"] == 2
    assert wire["claim"] == {"namespace": "default", "name": "uid-a", "uid": "uid-a"}


async def test_only_what_a_power_cut_may_leave_on_a_chip_waits_for_the_disk(tmp_path: Path) -> None:
    """The next boot forgets all other records, whatever became of them."""
    whole, cut = entry("uid-a"), cut_partition("uid-a")
    (tmp_path / "boot_id").write_text("boot\n")
    ledger = Ledger(tmp_path / "state", boot_id_file=tmp_path / "boot_id")
    counts = []
    async with ledger.exclusive():
        for each in (whole, cut, whole, whole):
            with syncs(tmp_path) as states:
                ledger.put(each)
            counts.append(len(states))

    assert counts == [1, 2, 0, 0]  # the mark of the boot; record and folder


async def test_the_first_mark_of_a_boot_is_on_the_disk_before_a_record_has_its_name(
    tmp_path: Path,
) -> None:
    """Else a power cut may leave a broken record that nothing says is of an earlier boot."""
    boot_id = tmp_path / "boot_id"
    for boot in ("one", "two"):
        boot_id.write_text(boot)
        ledger = Ledger(tmp_path, boot_id_file=boot_id)
        with syncs(tmp_path) as states:
            for number in range(2):
                async with ledger.exclusive():
                    ledger.put(entry(f"uid-{number}"))
        (state,) = states
        assert state["serialize.lock"].startswith(boot.encode())
        assert "uid-0.json" not in state


async def test_a_record_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    """Where no boot has an id, and nothing is forgotten."""
    ledger = Ledger(tmp_path, boot_id_file=tmp_path / "none")
    async with ledger.exclusive():
        with syncs(tmp_path / "claims") as states:
            ledger.put(entry("uid-a"))

    ((name, content),) = states[0].items()
    assert len(states) == 1
    assert name.startswith(".uid-a.json.")
    assert content == (tmp_path / "claims/uid-a.json").read_bytes()


async def test_records_are_not_read_again_while_nobody_else_writes(tmp_path: Path) -> None:
    """A prepare does not cost more on a node with many claims."""
    ledger = await ledger_with(tmp_path, entry("uid-a"))
    (tmp_path / "claims/uid-a.json").write_bytes(b"not read")

    async with ledger.exclusive():
        assert "uid-a" in ledger.by_uid


async def test_a_removed_record_is_gone_for_good(tmp_path: Path) -> None:
    """And removing an unknown one is fine."""
    ledger = await ledger_with(tmp_path, entry("uid-a"))
    async with ledger.exclusive():
        ledger.remove("uid-a")
        ledger.remove("uid-b")

    assert not ledger.by_uid
    assert list((tmp_path / "claims").iterdir()) == []


async def test_the_holds_of_all_are_told_when_they_change(tmp_path: Path) -> None:
    """At the end of the section, to whoever waits."""
    ledger = Ledger(tmp_path)
    assert not ledger.holds.value
    async with ledger.exclusive():
        ledger.put(entry("uid-a", 2))
        ledger.put(module("uid-b", 3))
        ledger.put(entry("uid-c", 2, admin_access=True))
        assert not ledger.holds.value
    told = [(hold.holder.uid, hold.device, hold.observer) for hold in ledger.holds.value]
    assert told == [
        ("uid-a", "npu-2", False),
        ("uid-b", "module-3", False),
        ("uid-c", "npu-2", True),
    ]
    async with ledger.exclusive():
        ledger.remove("uid-a")
        ledger.remove("uid-c")
    assert [hold.holder.uid for hold in ledger.holds.value] == ["uid-b"]
    assert ledger.holds.value == (await read(tmp_path)).holds.value


async def test_the_chips_of_holders_are_remembered_by_the_next_start(tmp_path: Path) -> None:
    """A chip that is held and cannot be seen is still there; lookers-on and leftovers hold none."""
    admin, left = entry("uid-c", 5, admin_access=True), of_partition("uid-d", number=8)
    left = replace(left, holder=left.holder._replace(kind=HolderKind.LEFTOVER))
    await ledger_with(tmp_path, entry("uid-a", 2), module("uid-b", 3), admin, left)
    ledger = await read(tmp_path)
    remembered = {chip.physical_id: chip for chip in ledger.remembered_chips()}
    assert sorted(remembered) == [2, 6, 7]
    assert remembered[2] == chip(2)


async def test_an_entry_is_overwritten_in_one_rename(tmp_path: Path) -> None:
    """Whenever this process dies there is a record, the old one or the new one."""
    ledger = await ledger_with(tmp_path, entry("uid-a", 2))
    async with ledger.exclusive():
        with renames(tmp_path / "claims") as states:
            ledger.put(entry("uid-a", 3))
    (state,) = states
    assert b"davinci2" in state["uid-a.json"]
    assert b"davinci3" in (tmp_path / "claims/uid-a.json").read_bytes()


async def test_a_record_that_cannot_be_read_is_told_until_its_claim_is_prepared_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log once a start."""
    await ledger_with(tmp_path, entry("uid-a"))
    (tmp_path / "claims/uid-a.json").write_bytes(b"{")
    ledger = Ledger(tmp_path)
    for _ in range(2):
        async with ledger.exclusive():
            assert ledger.unreadable == {"uid-a"}
        assert ledger.set_aside.value.keys() == {"uid-a"}
    assert len([line for line in caplog.messages if "set aside" in line]) == 1

    async with ledger.exclusive():
        ledger.put(entry("uid-a"))
    assert ledger.unreadable == ledger.set_aside.value.keys() == set()


async def test_a_record_changes_in_the_critical_section_only(tmp_path: Path) -> None:
    """Before and after it another call may be at it."""
    ledger = Ledger(tmp_path)
    for _ in range(2):
        with pytest.raises(AssertionError, match="inside exclusive"):
            ledger.put(entry("uid-a"))
        async with ledger.exclusive():
            pass


async def test_files_that_are_no_records_guard_nothing(tmp_path: Path) -> None:
    """People's files stay; unfinished files of killed writers are removed."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims/notes.txt").write_text("")
    (tmp_path / "claims/.uid-a.json.5f3a01c2").write_bytes(b'{"vers')
    assert (await read(tmp_path)).unreadable == frozenset()
    assert [path.name for path in (tmp_path / "claims").iterdir()] == ["notes.txt"]


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """A file is in its place."""
    (tmp_path / "claims").write_text("")

    with pytest.raises(StorageError, match=r"cannot make .*/claims: Not a directory"):
        async with Ledger(tmp_path).exclusive():
            pytest.fail("entered")


async def test_nothing_is_written_that_could_not_be_read_back(tmp_path: Path) -> None:
    """The old record stays."""
    ledger = await ledger_with(tmp_path, entry("uid-a"))
    async with ledger.exclusive():
        with pytest.raises(RecordCorrupt, match=r"read back \(devices: .* at least 1 item"):
            ledger.put(replace(entry("uid-a"), allocation=(), devices=()))
    assert [one.devices for one in ledger.by_uid.values()] == [entry("uid-a").devices]
    assert (await read(tmp_path)).by_uid == ledger.by_uid


async def test_memory_is_what_is_on_the_disk_if_a_sync_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has a name is held, what has none is not, whatever a power cut may make of it."""
    sync = os.fsync

    def fails_for_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    ledger, cut = Ledger(tmp_path), cut_partition("uid-a")
    monkeypatch.setattr(os, "fsync", fails_for_folders)
    async with ledger.exclusive():
        with pytest.raises(StorageError, match="cannot sync"):
            ledger.put(cut)
        assert set(ledger.by_uid) == {"uid-a"}
    assert [hold.holder.uid for hold in ledger.holds.value] == ["uid-a"]

    async with ledger.exclusive():
        with pytest.raises(StorageError, match="cannot sync"):
            ledger.remove("uid-a")
        assert not ledger.by_uid
    assert not ledger.holds.value
    assert list((tmp_path / "claims").iterdir()) == []


async def test_a_write_that_fails_keeps_memory_true(tmp_path: Path) -> None:
    """What is not on the disk is not held."""
    ledger = Ledger(tmp_path)

    async with ledger.exclusive():
        shutil.rmtree(tmp_path / "claims")
        with pytest.raises(StorageError, match=r"cannot write .*/claims/uid-a\.json"):
            ledger.put(entry("uid-a"))

    assert not ledger.by_uid
