"""A lock has one holder at a time, and none outlives its process."""

import fcntl
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests import foreign
from trio_npu_dra.kit.base.errors import ForeignFile, StorageError
from trio_npu_dra.kit.base.file_lock import FileLock

HOLDS = """
import sys, time
from pathlib import Path
from trio_npu_dra.kit.base.file_lock import FileLock

lock = FileLock(Path(sys.argv[1]))
print(lock.try_lock(), flush=True)
time.sleep(1000)
"""


def test_a_lock_that_is_let_go_is_free(tmp_path: Path) -> None:
    """By closing its file or not; what its holder has written is read by those who wait."""
    one, two = (FileLock(tmp_path / "lock") for _ in range(2))
    for let_go in (one.unlock, one.close):
        assert (one.try_lock(), two.try_lock(), one.try_lock()) == (True, False, True)
        one.write(b"one")
        assert (two.read(), two.is_held) == (b"one", False)
        let_go()
        assert (one.is_held, two.try_lock()) == (False, True)
        two.write(b"")
        two.unlock()


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    """SIGKILL leaves no lock behind."""
    lock = FileLock(tmp_path / "lock")
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert not lock.try_lock()
        process.kill()
        process.wait()
    assert lock.try_lock()
    lock.close()


# --- files that somebody changes -----------------------------------------------------------------


@pytest.mark.parametrize("kind", foreign.KINDS)
def test_something_foreign_in_a_locks_place_is_named(tmp_path: Path, kind: str) -> None:
    """Nothing is locked or made through a link; once it is gone the lock can be had."""
    path = tmp_path / "lock"
    foreign.put(kind, path)
    lock = FileLock(path)
    with pytest.raises(ForeignFile, match="/lock is not a file of this driver"):
        lock.try_lock()
    path.unlink()
    assert lock.try_lock()


def test_a_folder_that_was_replaced_is_named(tmp_path: Path) -> None:
    """A file is in its place."""
    folder = tmp_path / "state"
    folder.mkdir()
    held, waits = (FileLock(folder / "lock") for _ in range(2))
    assert (held.try_lock(), waits.try_lock()) == (True, False)
    folder.rename(tmp_path / "moved")
    folder.touch()
    held.close()
    with pytest.raises(StorageError, match=r"look at .*/lock: Not a directory"):
        waits.try_lock()
    with pytest.raises(StorageError, match=r"open .*/lock: Not a directory"):
        FileLock(folder / "lock").try_lock()


def test_a_lock_counts_only_while_it_has_its_name(tmp_path: Path) -> None:
    """A process that locked a replaced file would be alone with it."""
    path = tmp_path / "lock"

    def replace(frame: FrameType, event: str, function: object) -> None:
        del frame
        if event == "c_call" and function is fcntl.flock:
            sys.setprofile(None)
            path.rename(tmp_path / "old")
            path.touch()

    lock = FileLock(path)
    sys.setprofile(replace)
    try:
        assert not lock.try_lock()
    finally:
        sys.setprofile(None)
    assert (tmp_path / "old").exists()
    assert lock.try_lock()
    path.unlink()
    assert not lock.is_held
    other = FileLock(path)
    assert (other.try_lock(), lock.try_lock()) == (True, False)


def test_a_wait_goes_on_after_the_holders_file_was_removed(tmp_path: Path) -> None:
    """Then the second has the file that all other processes find."""
    path = tmp_path / "lock"
    first, second = FileLock(path), FileLock(path)
    assert (first.try_lock(), second.try_lock()) == (True, False)
    path.unlink()
    assert not second.try_lock()
    first.close()
    assert not second.try_lock()  # the file of the first has no name
    assert second.try_lock()
    assert path.exists()
