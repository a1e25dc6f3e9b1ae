"""One at a time, in this process and beside others."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints, wait_all_tasks_blocked

from trio_npu_dra.agent.holds.lock import NodeLock
from trio_npu_dra.kit.base.errors import StorageError


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock as another process does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("instances", [1, 2])
async def test_turns_do_not_overlap(
    instances: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Between tasks, and between instances on one file."""
    del autojump_clock
    locks = [NodeLock(tmp_path / "lock") for _ in range(instances)]
    inside: list[int] = []

    async def take_turns(lock: NodeLock, name: int) -> None:
        for _ in range(10):
            async with lock.hold(lambda turn: turn):
                assert inside == []
                inside.append(name)
                await trio.lowlevel.checkpoint()
                inside.remove(name)

    async with trio.open_nursery() as nursery:
        for name in range(4):
            nursery.start_soon(take_turns, locks[name % instances], name)


async def test_turns_of_one_process_come_in_the_order_of_asking_however_long_they_take(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Only another process can keep the lock for too long; a call of many claims may."""
    del autojump_clock
    lock = NodeLock(tmp_path / "lock")
    order: list[int] = []

    async def take_turn(name: int) -> None:
        await trio.sleep(name)
        async with lock.hold(lambda turn: turn):
            order.append(name)
            await trio.sleep(10)

    async with trio.open_nursery() as nursery:
        for name in range(5):
            nursery.start_soon(take_turn, name)
    assert order == [0, 1, 2, 3, 4]


async def test_a_free_lock_is_taken_without_a_checkpoint(tmp_path: Path) -> None:
    """Also once somebody has waited for it."""
    lock = NodeLock(tmp_path / "lock")
    async with trio.open_nursery() as nursery, lock.hold(lambda turn: turn):
        nursery.start_soon(take, lock)
        await wait_all_tasks_blocked()
    with assert_no_checkpoints():
        await take(lock)


async def take(lock: NodeLock) -> None:
    """Have a turn."""
    async with lock.hold(lambda turn: turn):
        pass


async def test_a_process_that_never_lets_go_is_named_by_its_file(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """After seconds, not at the end of the kubelet's call."""
    del autojump_clock
    lock = NodeLock(tmp_path / "lock")

    with locked(tmp_path / "lock"), pytest.raises(StorageError, match=r"has held .*/lock for 3 s"):
        async with lock.hold(lambda turn: turn):
            pytest.fail("entered")


async def test_an_announcement_changes_the_mark_for_others(tmp_path: Path) -> None:
    """Once a turn is enough."""
    one, two = NodeLock(tmp_path / "lock"), NodeLock(tmp_path / "lock")
    async with one.hold(lambda turn: turn) as turn:
        assert turn.mark == b""
        turn.announce()
        first = turn.mark
        turn.announce()
        assert turn.mark == first != b""
    async with two.hold(lambda turn: turn) as turn:
        assert turn.mark == first
        turn.announce()
    async with one.hold(lambda turn: turn) as turn:
        assert turn.mark != first
