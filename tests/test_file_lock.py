"""One holder at a time, and none that outlives its process."""

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_npu_dra.errors import StorageError
from trio_npu_dra.file_lock import hold

quickly = partial(hold, pause_seconds=0.001)

HOLDS = """
import sys, trio
from pathlib import Path
from trio_npu_dra.file_lock import hold

async def main():
    async with hold(Path(sys.argv[1]), pause_seconds=0.001):
        print("held", flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_one_waits_for_the_other(tmp_path: Path) -> None:
    """Whoever comes second is inside only after the first has left."""
    inside: list[str] = []

    async def second() -> None:
        async with quickly(tmp_path / "lock"):
            inside.append("second")

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery, quickly(tmp_path / "lock"):
            nursery.start_soon(second)
            await wait_all_tasks_blocked()
            inside.append("first")
    assert inside == ["first", "second"]


async def test_patience_has_an_end(tmp_path: Path) -> None:
    """The error names the file."""
    async with quickly(tmp_path / "lock"):
        with pytest.raises(StorageError, match=r"another process has held .*/lock for 0 s"):
            async with quickly(tmp_path / "lock", patience_seconds=0):
                pass


async def test_a_cancelled_wait_holds_nothing(tmp_path: Path) -> None:
    """The next one gets the lock at once."""
    async with quickly(tmp_path / "lock"):
        with trio.move_on_after(0.01):
            async with quickly(tmp_path / "lock"):
                pass
    with trio.fail_after(5):
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
