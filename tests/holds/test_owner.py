"""One instance owns a node, whatever becomes of the lock files."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import MockClock

from trio_npu_dra.agent.holds.owner import Life, Owner
from trio_npu_dra.kit.base.errors import LockHeld, StorageError
from trio_npu_dra.kit.base.file_lock import FileLock

LOCK = "publisher.lock"


def owner(folder: Path, uid: str) -> Owner:
    """An instance's ownership."""
    return Owner(folder, folder / f"dra-{uid}.sock")


async def test_something_foreign_in_a_locks_place_keeps_the_node_from_all(tmp_path: Path) -> None:
    """With one problem that names it, at the start and later, until people remove it."""
    (tmp_path / LOCK).mkdir()
    first, problem = owner(tmp_path, "a"), f"{tmp_path / LOCK} is not a file of this driver"
    assert not await first.try_take()
    assert first.problem.value == problem
    (tmp_path / LOCK).rmdir()
    assert await first.try_take()
    assert first.problem.value == ""

    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).mkdir()
    with pytest.raises(StorageError, match=problem):
        first.check()
    (tmp_path / LOCK).rmdir()
    first.check()
    assert not await owner(tmp_path, "b").try_take()


async def test_an_owner_that_lost_its_lock_ends_in_order(tmp_path: Path) -> None:
    """It invites nobody: whoever has the lock now may own the node."""
    lost, other = owner(tmp_path, "a"), FileLock(tmp_path / LOCK)
    assert await lost.try_take()
    (tmp_path / LOCK).unlink()
    assert other.try_lock()
    with pytest.raises(LockHeld, match=LOCK):
        lost.check()
    lost.invite()
    assert (tmp_path / LOCK).read_bytes() == b""
    lost.free()
    assert not await lost.try_take()


async def test_an_invited_instance_that_stops_takes_free_locks_at_once(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It answers the calls that it kept, even if it has lost sight of its chips meanwhile."""
    invited = owner(tmp_path, "a")
    invited.life.set(Life.DRAINS)
    await invited.wait(lambda: False)
    assert autojump_clock.current_time() == 0
