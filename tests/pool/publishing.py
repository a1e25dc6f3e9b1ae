"""A running publisher, and how tests wait for what it does."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from dev.rig.waiting import HANG_SECONDS
from tests.pool.reach import Reach
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import CounterSet, Device, DeviceTaint, ResourceSlice
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolAccepted, PoolContent, PublisherStatus, SliceWritten, publish
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.api_state import ApiState

DRIVER = "npu.example.com"
NODE = "node-1"
Devices = tuple[Device, ...]
WRITES = ("create", "update", "delete")
WITHOUT_FEATURES = Kubernetes(minor=34, taints=False, counters=False, shares=False)
"""As Kubernetes 1.34 is by default."""


def devices(count: int, *, taint: str | None = None) -> Devices:
    """Devices, the first one tainted if asked for."""
    made = [Device(name=f"npu-{number}") for number in range(count)]
    if taint is not None:
        taints = (DeviceTaint(key="example.com/fault", value=taint, effect="NoSchedule"),)
        made[0] = made[0].model_copy(update={"taints": taints})
    return tuple(made)


class Subject:
    """A running publisher with its pool, its status and its events."""

    def __init__(self, pool: PoolContent, state: ApiState) -> None:
        self.pool = Observable(pool)
        self.status = Observable(PublisherStatus())
        self.state = state
        self.events: list[PoolAccepted | SliceWritten] = []

    async def run(
        self,
        client: KubeClient,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Publish."""
        await publish(
            client,
            node_name=NODE,
            driver_name=DRIVER,
            pool=self.pool,
            status=self.status,
            on_event=self.events.append,
            task_status=task_status,
        )

    def publish(self, devices: Devices, counters: tuple[CounterSet, ...] = ()) -> None:
        """Want another pool."""
        self.pool.set(PoolContent(devices=devices, shared_counters=counters))

    async def until(self, wanted: Callable[[PublisherStatus], bool]) -> PublisherStatus:
        """Wait for a status."""
        with trio.fail_after(HANG_SECONDS):
            return await self.status.wait_until(wanted)

    async def until_settled(self) -> PublisherStatus:
        """Wait until the newest pool is accepted and edits would be seen."""
        return await self.until(lambda status: status.current and status.watching)

    async def until_stored(
        self, wanted: Callable[[tuple[ResourceSlice, ...]], bool], *, within: float = HANG_SECONDS
    ) -> None:
        """Wait until the API server has slices as wanted."""
        with trio.fail_after(within):
            while not wanted(self.slices):
                await self.state._changed.wait()

    def edit(self, index: int = 0) -> None:
        """Take the first device out of a slice and label it, as someone with an editor would."""
        stored = self.slices[index]
        spec = stored.spec.model_copy(update={"devices": stored.spec.devices[1:]})
        metadata = stored.metadata.model_copy(update={"labels": {"a": "b"}})
        self.state.put(stored.model_copy(update={"spec": spec, "metadata": metadata}))

    @property
    def slices(self) -> tuple[ResourceSlice, ...]:
        """What the API server has."""
        return self.state.all(ResourceSlice)

    @property
    def devices(self) -> Devices:
        """The devices that the API server has."""
        return tuple(device for item in self.slices for device in item.spec.devices)

    @property
    def writes(self) -> int:
        """How many writes the API server was asked for."""
        return sum(self.state.asked(verb) for verb in WRITES)


@asynccontextmanager
async def publishing(
    client: KubeClient, state: ApiState, pool: Devices, counters: tuple[CounterSet, ...] = ()
) -> AsyncIterator[Subject]:
    """A publisher for the time of the block."""
    subject = Subject(PoolContent(devices=pool, shared_counters=counters), state)
    async with trio.open_nursery() as nursery:
        with trio.fail_after(HANG_SECONDS):
            await nursery.start(subject.run, client)
        yield subject
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def settled(
    reach: Reach, pool: Devices, counters: tuple[CounterSet, ...] = ()
) -> AsyncIterator[Subject]:
    """A publisher without a network, once its pool is accepted."""
    async with publishing(KubeClient(reach), reach.state, pool, counters) as subject:
        await subject.until_settled()
        yield subject
