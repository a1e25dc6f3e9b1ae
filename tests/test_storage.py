"""Files are whole or absent."""

import stat
from pathlib import Path

import pytest

from tests.synced import syncs
from trio_npu_dra import storage
from trio_npu_dra.errors import StorageError


def test_a_write_replaces_the_whole_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """New content, asked-for mode, no temporary file."""
    path = tmp_path / "a.json"
    path.write_text("a much longer old content")

    storage.write_atomic(path, b"new", mode=0o644)

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_whole_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    """Synced once, under another name: a power cut leaves the old content or the new."""
    path = tmp_path / "a.json"
    path.write_bytes(b"old")

    with syncs(tmp_path) as states:
        storage.write_atomic(path, b"new")

    (state,) = states
    assert state.pop("a.json") == b"old"
    assert list(state.values()) == [b"new"]


def test_a_file_that_can_be_made_anew_costs_no_sync(tmp_path: Path) -> None:
    """It is as whole for everybody until a power cut."""
    with syncs(tmp_path) as states:
        storage.write_atomic(tmp_path / "a.json", b"new", sync=False)

    assert states == []


def test_a_failed_write_keeps_the_old_file_and_names_the_path(tmp_path: Path) -> None:
    """A target that cannot be replaced (a folder) leaves no temporary file."""
    path = tmp_path / "a.json"
    path.mkdir()

    with pytest.raises(StorageError, match=r"cannot write .*a\.json"):
        storage.write_atomic(path, b"new")

    assert list(tmp_path.iterdir()) == [path]


def test_reading_and_removing_a_missing_file_is_no_error(tmp_path: Path) -> None:
    """Absence is an answer."""
    path = tmp_path / "a.json"

    assert storage.read_bytes(path) is None
    assert storage.remove(path) is False

    path.write_bytes(b"x")
    assert storage.read_bytes(path) == b"x"
    assert storage.remove(path) is True
    assert not path.exists()


def test_a_missing_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The message leads the operator to the folder."""
    with pytest.raises(StorageError, match="nowhere"):
        storage.write_atomic(tmp_path / "nowhere" / "a", b"")
