"""A process is asked before its system calls, and what is not allowed does not happen."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
import trio

from dev.rig.notified import Calls, Filter

NAMES = ("mkdir", "mkdirat", "openat")
FOLDERS = ("a", "b", "c")


def make_folders(calls: Filter, folder: Path) -> None:
    """What the process does; it opens a file too, but only to read."""
    calls.load()
    (folder / "read").read_bytes()
    for name in FOLDERS:
        (folder / name).mkdir()


@pytest.mark.parametrize("allowed", [0, 2])
async def test_who_is_killed_at_a_call_has_made_those_before(tmp_path: Path, allowed: int) -> None:
    """And not that one; the call tells its arguments."""
    (tmp_path / "read").touch()
    calls = Calls(NAMES)
    process = multiprocessing.get_context("forkserver").Process(
        target=make_folders, args=(calls.filter, tmp_path)
    )
    process.start()
    asked = []
    with trio.fail_after(60):
        listener = await calls.listen()
        for _ in range(allowed + 1):
            await trio.lowlevel.wait_readable(listener)
            call = calls.receive()
            assert call is not None
            address = call.arguments[call.name == "mkdirat"]
            asked.append(call.memory(address, 4096).partition(b"\0")[0])
            if len(asked) <= allowed:
                calls.allow(call)
        process.kill()
        await trio.lowlevel.wait_readable(process.sentinel)
    calls.close()

    assert process.exitcode == -signal.SIGKILL
    assert asked == [os.fsencode(tmp_path / name) for name in FOLDERS[: allowed + 1]]
    assert [name for name in FOLDERS if (tmp_path / name).exists()] == list(FOLDERS[:allowed])
    process.close()
