"""A lock has one holder at a time, and none outlives its process."""

import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import FrameType

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS
from tests import foreign
from trio_npu_dra.kit.base.errors import LockHeld, StorageError
from trio_npu_dra.kit.base.file_lock import hold

quickly = partial(hold, pause_seconds=0.001)

HOLDS = """
import sys, trio
from pathlib import Path
from trio_npu_dra.kit.base.file_lock import hold

async def main():
    async with hold(Path(sys.argv[1]), pause_seconds=0.001):
        print("held", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_a_wait_that_ends_holds_nothing(tmp_path: Path) -> None:
    """By its patience, whose error names the file, or cancelled: the next process gets the lock."""
    async with quickly(tmp_path / "lock"):
        with pytest.raises(LockHeld, match="/lock for 0 s"):
            async with quickly(tmp_path / "lock", patience_seconds=0):
                pass
        with trio.move_on_after(0.01):
            async with quickly(tmp_path / "lock"):
                pass
    with trio.fail_after(HANG_SECONDS):
        async with quickly(tmp_path / "lock"):
            pass


async def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    """SIGKILL leaves no lock behind."""
    command = [sys.executable, "-c", HOLDS, str(tmp_path / "lock")]
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            run = partial(trio.run_process, stdout=subprocess.PIPE, check=False)
            process: trio.Process = await nursery.start(run, command)
            assert process.stdout is not None
            async with process.stdout as said:
                assert (await said.receive_some()).startswith(b"held")
                with pytest.raises(StorageError):
                    async with quickly(tmp_path / "lock", patience_seconds=0):
                        pass
                process.kill()
                async with quickly(tmp_path / "lock"):
                    pass


# --- foreign things ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", foreign.KINDS)
async def test_something_foreign_in_a_locks_place_is_set_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The lock follows no link and waits for no pipe, and concurrent processes take turns."""
    path = tmp_path / "lock"
    foreign.put(kind, path)
    inside: list[int] = []

    async def take_turns(name: int) -> None:
        for _ in range(3):
            async with quickly(path) as descriptor:
                assert inside == []
                inside.append(name)
                os.pwrite(descriptor, b"mark", 0)
                await trio.lowlevel.checkpoint()
                inside.remove(name)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for name in range(3):
                nursery.start_soon(take_turns, name)

    assert path.read_bytes() == b"mark"
    assert len(foreign.set_aside(path)) == 1
    assert vars(caplog.records[0])["path"] == str(path)
    victim = foreign.victim(path)
    assert not victim.exists() or victim.read_text() == "secret"


async def test_a_lock_with_a_second_name_is_set_aside(tmp_path: Path) -> None:
    """Writes to it would change another file."""
    (tmp_path / "victim").write_text("secret")
    (tmp_path / "lock").hardlink_to(tmp_path / "victim")

    with trio.fail_after(10):
        async with quickly(tmp_path / "lock") as descriptor:
            os.pwrite(descriptor, b"mark", 0)

    assert (tmp_path / "victim").read_text() == "secret"


async def test_a_folder_that_was_replaced_during_the_wait_is_named(tmp_path: Path) -> None:
    """A file is in its place."""
    folder = tmp_path / "state"
    folder.mkdir()
    path = folder / "lock"

    async def wait() -> None:
        with pytest.raises(StorageError, match=r"look at .*/lock: Not a directory"):
            async with quickly(path):
                pass

    with trio.fail_after(HANG_SECONDS):
        async with trio.open_nursery() as nursery, quickly(path):
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            folder.rename(tmp_path / "moved")
            folder.touch()
    with pytest.raises(StorageError, match=r"open .*/lock: Not a directory"):
        async with quickly(path):
            pass


async def test_a_lock_counts_only_while_it_has_its_name(tmp_path: Path) -> None:
    """A process that locked a replaced file would be alone with it."""
    path = tmp_path / "lock"

    def replace(frame: FrameType, event: str, function: object) -> None:
        del frame
        if event == "c_call" and function is fcntl.flock:
            sys.setprofile(None)
            path.rename(tmp_path / "old")
            path.touch()

    sys.setprofile(replace)
    try:
        with trio.fail_after(10):
            async with quickly(path) as descriptor:
                assert os.fstat(descriptor).st_ino == path.stat().st_ino
    finally:
        sys.setprofile(None)
    assert (tmp_path / "old").exists()


async def test_a_wait_goes_on_after_the_holders_file_was_removed(tmp_path: Path) -> None:
    """Then the second has the file that all other processes find."""
    path = tmp_path / "lock"
    inside: list[str] = []

    async def second() -> None:
        async with quickly(path) as descriptor:
            inside.append("second")
            assert os.fstat(descriptor).st_ino == path.stat().st_ino

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery, quickly(path):
            nursery.start_soon(second)
            await wait_all_tasks_blocked()
            path.unlink()
            await trio.sleep(0.005)
            inside.append("first")
    assert inside == ["first", "second"]
