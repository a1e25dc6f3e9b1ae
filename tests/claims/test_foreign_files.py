"""Foreign changes to the driver's files cost at most the claim of these files."""

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from tests import foreign
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in, prepare, start, unprepare
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.base.storage import SIZE_LIMIT


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, SIZE_LIMIT + 1)


def _deep(path: Path) -> None:
    path.write_bytes(b'{"version": ' + b"[" * 500_000)


RECORDS = {
    **{kind: (make, "is not a file of this driver") for kind, make in foreign.KINDS.items()},
    "huge": (_huge, f"has {SIZE_LIMIT + 1} bytes, at most {SIZE_LIMIT} are read"),
    "deep": (_deep, "recursion limit exceeded"),
}


# --- among the records ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RECORDS)
async def test_a_record_that_is_something_foreign_costs_its_own_claim_only(
    two_claims: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Its NPU stays guarded, also by the next starts, and unprepare ends it."""
    make, problem = RECORDS[kind]
    path = two_claims.records_folder / "uid-a.json"
    path.unlink()
    make(path)
    two_claims.source.store(claim("d", result("npu-5")))

    for _ in range(2):
        answers = await prepare(two_claims, "b", "d", "c")
        assert (answers["b"], answers["d"]) == ("", "")
        assert "npu-2 may be in use by the claim with UID uid-a" in answers["c"]
    caplog.clear()
    await start(two_claims, nursery)
    (said,) = errors_in(caplog)
    assert problem in said
    assert "claim records were missing" not in caplog.text

    assert await unprepare(two_claims, "a") == {"a": ""}
    assert await prepare(two_claims, "c") == {"c": ""}


@pytest.mark.parametrize("kind", foreign.KINDS)
@pytest.mark.parametrize("name", [".trash", "notes", ".x.json"])
async def test_other_foreign_things_among_the_records_are_left_alone(
    two_claims: NodeOnDisk, kind: str, name: str
) -> None:
    """Nobody's claim hangs on them."""
    path = two_claims.records_folder / name
    foreign.put(kind, path)
    claims = two_claims.start(patience=AT_ONCE)

    for _ in range(2):
        assert (await claims.prepare([ref("b")]))["uid-b"].error == ""
        assert await unprepare(two_claims, "b") == {"b": ""}  # another instance: all is read again

    assert foreign.is_there(path)


@pytest.mark.parametrize("name", ["x" * 240, "x" * 161, "a\nb", "\x1b[31m", "\udcff"])
async def test_a_name_that_no_record_can_have_costs_no_claim(
    two_claims: NodeOnDisk, name: str
) -> None:
    """It is longer than a UID makes it, or has letters that no UID has; it stays as it is."""
    path = two_claims.records_folder / f"{name}.json"
    path.write_text("{}")
    two_claims.source.store(claim("d", result("npu-5")))

    assert await prepare(two_claims, "b", "d") == {"b": "", "d": ""}

    assert path.read_text() == "{}"


# --- folders -------------------------------------------------------------------------------------


async def test_records_are_written_again_when_they_vanished(two_claims: NodeOnDisk) -> None:
    """The driver knows them; the next start does once they are written."""
    claims = two_claims.start(patience=AT_ONCE)
    await claims.prepare([ref("b")])
    shutil.rmtree(two_claims.state_folder)

    assert "held by claim default/a" in (await claims.prepare([ref("c")]))["uid-c"].error

    assert two_claims.record_uids() == {"uid-a", "uid-b"}
    assert stat.S_IMODE(two_claims.state_folder.stat().st_mode) == 0o750
    assert stat.S_IMODE(two_claims.records_folder.stat().st_mode) == 0o700
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]


async def test_a_claim_whose_record_could_not_be_read_is_known_in_a_new_folder_too(
    two_claims: NodeOnDisk,
) -> None:
    """Also by the next start."""
    (two_claims.records_folder / "uid-a.json").write_text("{")
    claims = two_claims.start(patience=AT_ONCE)
    await claims.prepare([ref("b")])
    shutil.rmtree(two_claims.records_folder)

    assert "may be in use" in (await claims.prepare([ref("c")]))["uid-c"].error
    assert "may be in use" in (await prepare(two_claims, "c"))["c"]
    assert await unprepare(two_claims, "a") == {"a": ""}
    assert await prepare(two_claims, "c") == {"c": ""}


async def test_a_record_that_vanished_is_written_again_at_the_next_look(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """By a driver that knows it, whatever has its name now."""
    del autojump_clock
    await start(two_claims, nursery)
    (two_claims.records_folder / "uid-a.json").unlink()
    (two_claims.records_folder / "uid-b.json").unlink()
    foreign.put("pipe", two_claims.records_folder / "uid-b.json")

    await trio.sleep(6)

    assert [two_claims.record(uid)["claim"]["name"] for uid in ("uid-a", "uid-b")] == ["a", "b"]


async def test_a_folder_in_place_of_a_record_keeps_no_other_from_being_written(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The next start would take the other claim's NPU for free."""
    del autojump_clock
    await start(two_claims, nursery)
    for uid in ("uid-a", "uid-b"):
        (two_claims.records_folder / f"{uid}.json").unlink()
    (two_claims.records_folder / "uid-a.json").mkdir()

    await trio.sleep(6)

    assert two_claims.record("uid-b")["claim"]["name"] == "b"


async def test_modes_of_folders_are_put_back(two_claims: NodeOnDisk) -> None:
    """For all to write they would be anybody's claims."""
    folders = {two_claims.state_folder: 0o750, two_claims.records_folder: 0o700}
    for folder in folders:
        folder.chmod(0o777)

    await prepare(two_claims, "a")

    assert {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders} == folders


async def test_the_ledger_reports_why_it_cannot_be_entered(
    two_claims: NodeOnDisk,
) -> None:
    """For the probes: here a link to another folder."""
    ledger = two_claims.ledger()
    kept = two_claims.records_folder.rename(two_claims.root / "kept")
    two_claims.records_folder.symlink_to(kept)

    with pytest.raises(StorageError):
        async with ledger.exclusive():
            pytest.fail("entered")
    assert ledger.problem.value.endswith("/claims: Not a directory")

    two_claims.records_folder.unlink()
    kept.rename(two_claims.records_folder)
    async with ledger.exclusive():
        assert ledger.problem.value == ""
        assert set(ledger.by_uid) == {"uid-a", "uid-b"}


async def test_an_error_inside_the_critical_section_is_no_problem_of_the_ledger(
    two_claims: NodeOnDisk,
) -> None:
    """Such as a full disk: other claims may be unprepared."""
    ledger = two_claims.ledger()
    with pytest.raises(StorageError):
        async with ledger.exclusive():
            raise StorageError("the disk is full")
    assert ledger.problem.value == ""


# --- CDI files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_looked_at", [True, False], ids=["look", "prepare"])
async def test_mode_and_owner_of_a_cdi_file_are_put_back(
    two_claims: NodeOnDisk,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    is_looked_at: bool,
) -> None:
    """Within five seconds, and by a prepare; what it says stays."""
    del autojump_clock
    path = two_claims.cdi_path("uid-a")
    right = path.read_bytes()
    if is_looked_at:
        await start(two_claims, nursery)
    path.chmod(0o666)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)

    if is_looked_at:
        await trio.sleep(6)
    else:
        assert await prepare(two_claims, "a") == {"a": ""}

    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o644, os.geteuid())
    assert path.read_bytes() == right


@pytest.mark.parametrize("kind", foreign.KINDS)
async def test_something_foreign_in_the_place_of_a_cdi_file_gives_way(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock, kind: str
) -> None:
    """At a look; nothing is written through a link. A file of no claim goes too."""
    del autojump_clock
    await start(two_claims, nursery)
    path, orphan = two_claims.cdi_path("uid-a"), two_claims.cdi_path("orphan")
    path.unlink()
    for each in (path, orphan):
        foreign.put(kind, each)
    victim = foreign.victim(path)

    await trio.sleep(6)

    assert json.loads(path.read_bytes())["kind"] == "npu.huawei.com/npu"
    assert not foreign.is_there(orphan)
    assert not victim.exists() or victim.read_text() == "secret"


@pytest.mark.parametrize("kind", foreign.KINDS)
async def test_a_foreign_part_of_a_cdi_file_does_not_stop_the_repair(
    two_claims: NodeOnDisk, nursery: trio.Nursery, kind: str
) -> None:
    """A start mends the files of all claims."""
    foreign.put(kind, two_claims.cdi_root / ".npu.huawei.com-npu_x.json.00000000")
    two_claims.cdi_path("uid-a").unlink()

    await start(two_claims, nursery)

    assert two_claims.cdi_path("uid-a").is_file()


@pytest.mark.parametrize("kind", foreign.KINDS)
async def test_two_files_of_one_claim_that_are_foreign_guard_nothing(
    two_claims: NodeOnDisk, kind: str
) -> None:
    """Nobody knows what it had: other claims must not wait for it for ever."""
    for path in (two_claims.records_folder / "uid-a.json", two_claims.cdi_path("uid-a")):
        path.unlink()
        foreign.put(kind, path)

    assert await prepare(two_claims, "b", "c") == {"b": "", "c": ""}


async def test_a_cdi_file_that_was_given_to_another_user_still_guards(
    two_claims: NodeOnDisk,
) -> None:
    """Whose record cannot be read."""
    (two_claims.records_folder / "uid-a.json").write_text("{")
    if os.geteuid() == 0:
        os.chown(two_claims.cdi_path("uid-a"), 65534, 65534)

    assert "may be in use" in (await prepare(two_claims, "c"))["c"]
