"""Two instances with two opinions of one pool, as in a rolling update between versions."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS
from tests.pool.publishing import Subject
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Device, ResourceSlice
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolContent, PublisherStatus, publisher_lock
from trio_npu_dra.lab.standins.api_state import ApiState


async def test_the_older_instance_publishes_until_it_ends(
    client: KubeClient, state: ApiState, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """No fight: a younger instance writes nothing until then, and may end without a trace.

    The older one repairs its slices meanwhile; the last one needs one write for its own pool.
    """

    async def live(subject: Subject) -> None:
        with lives[subject]:
            async with publisher_lock(tmp_path, subject.status):
                await subject.run(client)

    def published() -> list[str]:
        return [device.name for device in older.devices]

    older, short_lived, younger = (
        Subject(PoolContent(devices=(Device(name=name),)), state)
        for name in ("old", "short-lived", "new")
    )
    lives = {each: trio.CancelScope() for each in (older, short_lived, younger)}
    with trio.fail_after(HANG_SECONDS):
        nursery.start_soon(live, older)
        await older.until_settled()
        nursery.start_soon(live, short_lived)
        nursery.start_soon(live, younger)
        await wait_all_tasks_blocked()
        assert (published(), older.writes) == (["old"], 1)
        assert (older.status.value.waiting, younger.status.value.waiting) == (False, True)
        assert (older.status.value.has_lock, younger.status.value.has_lock) == (True, False)

        lives[short_lived].cancel()
        state.remove(ResourceSlice, older.slices[0].metadata.name)
        await older.until_stored(lambda _: published() == ["old"])
        await older.until_settled()
        written = older.writes

        lives[older].cancel()
        await younger.until_settled()
        assert not younger.status.value.waiting
        assert younger.status.value.has_lock
        assert (published(), younger.writes) == (["new"], written + 1)
        lives[younger].cancel()


async def test_a_lock_that_cannot_be_used_is_said_once_and_waited_for(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver's folder may be missing for a while."""
    del autojump_clock
    folder, status = tmp_path / "later", Observable(PublisherStatus())

    async def make_folder() -> None:
        await trio.sleep(60)
        assert status.value.waiting
        folder.mkdir()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(make_folder)
        async with publisher_lock(folder, status):
            assert trio.current_time() > 0
            assert not status.value.waiting
    assert len(caplog.messages) == 1
