"""From one owner of the node to the next (docs/architecture.md, "The life of an instance")."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import trio

from trio_npu_dra.agent.daemon.node import NodeContext
from trio_npu_dra.agent.devices.features import follow_features
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.watcher import BoardWatch
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.base import disk, watchdog
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.grpc import is_refused, is_socket
from trio_npu_dra.kit.kubelet.driver import ClaimRef, Driver, PrepareResult
from trio_npu_dra.kit.kubelet.endpoints import Endpoints, running_instances

log = logging.getLogger(__name__)

HAND_OVER_SECONDS: Final = 3.0
"""How long the owner waits for the kubelet to know the next one; the kubelet looks every second."""

_PAUSE_SECONDS: Final = 0.02
_OLDER_SECONDS: Final = 2.0  # between two looks for an older release
_LOOK_STUCK_SECONDS: Final = 60.0


class OwnersCalls:
    """Keeps the kubelet's calls until this instance owns the node; fulfils `Driver`."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._opened = trio.Event()

    def open(self, driver: Driver) -> None:
        """Have them answered from now on."""
        self._driver = driver
        self._opened.set()

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareResult]:
        """As the driver does."""
        return await (await self._owning()).prepare(claims) if claims else {}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, str]:
        """As the driver does."""
        return await (await self._owning()).unprepare(claims) if claims else {}

    async def _owning(self) -> Driver:
        if self._driver is None:
            await self._opened.wait()
        assert self._driver is not None
        return self._driver


async def own(node: NodeContext, kube: KubeClient, worker: DcmiWorker) -> None:
    """Own the node: at once if nobody does, else get ready beside the owner, and wait for it."""
    if await node.owner.try_take():
        return
    log.info("waiting for the instance that serves this node to end")
    watch = BoardWatch(
        worker=worker,
        dcmi=node.dcmi,
        host=node.host,
        board=node.seen,
        interval=node.settings.health_poll_interval,
    )
    async with trio.open_nursery() as looking:
        looking.start_soon(watch.look)
        looking.start_soon(
            partial(
                follow_features,
                kube,
                node_name=node.settings.node_name,
                driver_name=node.settings.driver_name,
                features=node.features,
                status=node.publisher,
            )
        )
        await node.owner.wait(lambda: not node.lacks())
        looking.cancel_scope.cancel()


async def hand_over(node: NodeContext, stop: trio.Event, end: trio.Event) -> None:
    """After *stop*, set *end* once the kubelet knows the next owner, or there is none."""
    await stop.wait()
    was = node.owner.life.value
    node.owner.life.set(Life.DRAINS)
    if was is Life.OWNS and await disk.run(partial(_is_other_running, node.endpoints)):
        await disk.run(node.owner.invite)
        with trio.move_on_after(HAND_OVER_SECONDS):
            while await disk.run(node.endpoints.registration.exists):  # noqa: ASYNC110 - a file
                await trio.sleep(_PAUSE_SECONDS)
    end.set()


async def stop_for_older_release(node: NodeContext, stop: trio.Event) -> None:
    """Stop when a release that does not wait for an owner serves beside this one.

    It can answer no call, and is never ready, before this instance has ended.
    """
    while True:
        with watchdog.step("looking for an older release", limit=_LOOK_STUCK_SECONDS):
            if await disk.run(partial(_is_other_serving, node.endpoints)):
                break
        await trio.sleep(_OLDER_SECONDS)
    log.warning("an older release of the driver has started on this node: stopping for it")
    stop.set()


def _is_other_running(ours: Endpoints) -> bool:
    try:
        return len(running_instances(ours.plugin_directory)) > 1
    except StorageError:
        return False


def _is_other_serving(ours: Endpoints) -> bool:
    try:
        services = [other.service for other in ours.others()]
    except StorageError:
        return False
    return any(is_socket(path) and not is_refused(path) for path in services)
