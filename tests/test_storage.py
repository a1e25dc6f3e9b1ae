"""Files are whole or absent."""

import os
import stat
from pathlib import Path

import pytest

from tests import foreign
from tests.full_disk import no_file_beyond
from tests.synced import syncs
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import ForeignFile, StorageError


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """The file has the new content and mode, and no temporary file stays."""
    path = tmp_path / "a.json"
    path.write_text("a much longer old content")

    storage.write_atomic(path, b"new", mode=0o644)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_containers_have_keeps_its_inode(tmp_path: Path) -> None:
    """It gets content and mode, and none of both if it has them."""
    path = tmp_path / "a.json"
    storage.write_in_place(path, b"a much longer old content", mode=0o644)
    path.chmod(0o600)
    inode = path.stat().st_ino

    for content in (b"new", b"old"):
        storage.write_in_place(path, content, mode=0o644)

        before = path.stat()
        assert path.read_bytes() == content
        assert (before.st_ino, stat.S_IMODE(before.st_mode)) == (inode, 0o644)
        storage.write_in_place(path, content, mode=0o644)
        assert path.stat().st_ctime_ns == before.st_ctime_ns
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_containers_have_becomes_the_drivers_again(tmp_path: Path) -> None:
    """Else it would be written at each look."""
    path = tmp_path / "a.json"
    path.write_bytes(b"theirs")
    if os.geteuid() == 0:  # only root can give a file to another user
        os.chown(path, 65534, 65534)
    storage.write_in_place(path, b"ours", mode=0o644)
    assert storage.holds(path, b"ours", mode=0o644)


def test_a_file_is_whole_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """One sync, under another name: a power cut leaves the old content or the new; or none."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    with syncs(tmp_path) as states:
        storage.write_atomic(path, b"new")
        storage.write_atomic(path, b"newer", sync=False)

    (state,) = states
    assert state.pop("a.json") == b"old"
    assert list(state.values()) == [b"new"]


def test_a_failed_write_keeps_the_old_file_and_names_the_path(tmp_path: Path) -> None:
    """A full disk leaves no temporary file, and a missing folder is an error."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    with no_file_beyond(2), pytest.raises(StorageError, match=r"cannot write .*a\.json: File too"):
        storage.write_atomic(path, b"new")

    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"
    with pytest.raises(StorageError, match="nowhere"):
        storage.write_atomic(tmp_path / "nowhere" / "a", b"")


def test_reading_and_removing_a_missing_file_is_no_error(tmp_path: Path) -> None:
    """Reading gives None."""
    path = tmp_path / "a.json"

    assert storage.read_bytes(path) is None
    storage.remove(path)

    path.write_bytes(b"x")
    assert storage.read_bytes(path) == b"x"
    storage.remove(path)
    assert not path.exists()


# --- foreign things ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", foreign.KINDS)
def test_a_foreign_thing_is_not_read_and_gives_way_to_a_write(tmp_path: Path, kind: str) -> None:
    """The driver follows no link and waits for no pipe, also where it writes in place."""
    path = tmp_path / "a.json"
    foreign.put(kind, path)
    victim = foreign.victim(path)

    with pytest.raises(ForeignFile, match=r"a\.json is not a file of this driver"):
        storage.read_bytes(path)
    assert not storage.holds(path, b"secret", mode=0o600)
    with pytest.raises(ForeignFile, match=r"a\.json is not a file of this driver"):
        storage.write_in_place(path, b"new", mode=0o600)
    storage.write_atomic(path, b"new")

    assert storage.read_bytes(path) == b"new"
    assert not victim.exists() or victim.read_text() == "secret"


def test_a_folder_in_a_files_place_stays(tmp_path: Path) -> None:
    """With one error that names it; only people remove it."""
    path = tmp_path / "a.json"
    path.mkdir()

    with pytest.raises(ForeignFile, match=r"a\.json is not a file of this driver"):
        storage.read_bytes(path)
    with pytest.raises(StorageError, match=r"cannot write .*a\.json: Is a directory"):
        storage.write_atomic(path, b"new")
    with pytest.raises(StorageError, match=r"cannot remove .*a\.json: Is a directory"):
        storage.remove(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    """It would fill the node's memory."""
    path = tmp_path / "a.json"
    path.touch()
    os.truncate(path, storage.SIZE_LIMIT + 1)

    with pytest.raises(ForeignFile, match=f"has {storage.SIZE_LIMIT + 1} bytes"):
        storage.read_bytes(path)
    assert storage.read_bytes(path, limit=storage.SIZE_LIMIT + 1)


def test_a_file_holds_what_it_says_in_its_form(tmp_path: Path) -> None:
    """Content and mode; a missing file holds nothing."""
    path = tmp_path / "a.json"
    assert not storage.holds(path, b"", mode=0o600)
    storage.write_atomic(path, b"new", mode=0o644)

    assert storage.holds(path, b"new", mode=0o644)
    assert not storage.holds(path, b"new", mode=0o600)
    assert not storage.holds(path, b"old", mode=0o644)
    assert not storage.holds(path, b"newer", mode=0o644)


# --- temporary files -----------------------------------------------------------------------------


def test_temporary_files_of_killed_writers_go(tmp_path: Path) -> None:
    """Those of the named files."""
    other = tmp_path / ".b.json.5f3a01c2"
    other.write_bytes(b"")
    (tmp_path / ".a.json.5f3a01c2").write_bytes(b"")
    storage.remove_unfinished(tmp_path, "a.json")
    assert list(tmp_path.iterdir()) == [other]


def test_a_temporary_file_that_cannot_be_removed_stays(tmp_path: Path) -> None:
    """The sweep goes on to the next file."""
    (tmp_path / ".a.json.00000000").mkdir()
    (tmp_path / ".a.json.11111111").write_bytes(b"")

    storage.remove_unfinished(tmp_path, "a.json")

    assert {path.name for path in tmp_path.glob(".*")} == {".a.json.00000000"}


# --- folders -------------------------------------------------------------------------------------


def test_a_folder_is_made_and_its_mode_put_back(tmp_path: Path) -> None:
    """That holds for any umask."""
    folder = tmp_path / "folder"
    before = os.umask(0o077)
    try:
        assert storage.make_folder(folder, mode=0o750) is True
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    folder.chmod(0o777)

    assert storage.make_folder(folder, mode=0o750) is False

    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


@pytest.mark.parametrize("kind", ["link", "pipe", "socket"])
def test_a_folder_is_never_somewhere_else(tmp_path: Path, kind: str) -> None:
    """Not behind a link to a folder either."""
    foreign.put(kind, tmp_path / "folder")

    with pytest.raises(StorageError, match=r"cannot make .*/folder: Not a directory"):
        storage.make_folder(tmp_path / "folder", mode=0o750)
