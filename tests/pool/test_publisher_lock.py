"""Two instances with two opinions of one pool, as in a rolling update between versions."""

from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import Device, ResourceSlice
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolContent, PublisherStatus, publish, publisher_lock
from trio_npu_dra.lab.standins.api_state import ApiState


class Instance:
    """An instance that publishes one device, once it has the lock."""

    def __init__(self, client: KubeClient, folder: Path, device: str) -> None:
        self.status = Observable(PublisherStatus())
        self.publish = partial(
            publish,
            client,
            node_name="node-1",
            driver_name="npu.example.com",
            pool=Observable(PoolContent(devices=(Device(name=device),))),
            status=self.status,
            node_uid=Observable(""),
        )
        self.folder = folder
        self.life = trio.CancelScope()

    async def run(self) -> None:
        """Live."""
        with self.life:
            async with publisher_lock(self.folder, self.status):
                await self.publish()

    async def until_settled(self) -> None:
        """Wait until its pool is the one that is published."""
        await self.status.wait_until(lambda status: status.current and status.watching)


def published(state: ApiState) -> list[str]:
    """The names of all published devices."""
    slices = state.all(ResourceSlice)
    return [device.name for item in slices for device in item.spec.devices or ()]


def writes(state: ApiState) -> int:
    """How many writes the API server was asked for."""
    return sum(state.asked(verb) for verb in ("create", "update", "delete"))


async def test_the_older_instance_publishes_until_it_ends(
    client: KubeClient, state: ApiState, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """No fight: the younger says nothing while both run, and then what it knows, in one write."""
    older, younger = (Instance(client, tmp_path, name) for name in ("old", "new"))
    with trio.fail_after(10):
        nursery.start_soon(older.run)
        await older.until_settled()
        nursery.start_soon(younger.run)
        await wait_all_tasks_blocked()
        assert (published(state), writes(state)) == (["old"], 1)
        assert (older.status.value.waiting, younger.status.value.waiting) == (False, True)

        older.life.cancel()
        await younger.until_settled()
        assert not younger.status.value.waiting
        assert (published(state), writes(state)) == (["new"], 2)
        younger.life.cancel()


async def test_a_younger_instance_that_ends_changes_nothing(
    client: KubeClient, state: ApiState, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """The older one still repairs its slices."""
    older, younger = (Instance(client, tmp_path, name) for name in ("old", "new"))
    with trio.fail_after(10):
        nursery.start_soon(older.run)
        await older.until_settled()
        nursery.start_soon(younger.run)
        await wait_all_tasks_blocked()
        younger.life.cancel()
        state.remove(ResourceSlice, state.all(ResourceSlice)[0].metadata.name)
        while not published(state):
            await trio.lowlevel.checkpoint()
        assert published(state) == ["old"]
        older.life.cancel()


async def test_a_lock_that_cannot_be_used_is_said_once_and_waited_for(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As while the driver's folder is gone."""
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

    assert caplog.messages == ["publishing has to wait for its lock file"]
