"""The loop that keeps the API server's slices equal to the newest pool.

It adopts existing slices: a restart with an equal pool writes nothing. Updates and deletes are
planned on what the watch shows, which begins with the first list: they name a version, and the API
server refuses them if it has another one. A create is planned on a list that was read just before,
so that one whose answer was lost is not repeated; so is every write after a failure. When the task
is cancelled the slices stay: they belong to the Node, not to this process.
"""

import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from math import inf
from typing import Final, Literal, TypeAlias

import trio

from trio_npu_dra.kit.api.client import WATCH_SECONDS, KubeClient
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.api.watch import View
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import Invalid, InvalidPool, KubeError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.base.pace import Backoff, ChangePace, Retry
from trio_npu_dra.kit.pool.diff import Write
from trio_npu_dra.kit.pool.node_slices import Listed, NodeSlices, Slices
from trio_npu_dra.kit.pool.pool import PoolContent, check

log = logging.getLogger(__name__)

_RECONCILE_STUCK_SECONDS: Final = 180.0  # a node may need a dozen slices, each request has 10 s
_WATCH_STUCK_SECONDS: Final = WATCH_SECONDS + 60.0
_REPAIR_LIMIT: Final = 60.0  # seconds between repairs of other people's edits, at most
_LAG_SECONDS: Final = 2.0
"""How long the watch may take to show what was written, before it counts as undone."""


@dataclass(frozen=True, slots=True)
class PublisherStatus:
    """The state of publishing.

    Attributes:
        published: The API server has accepted a pool of this run, or had an equal one.
        current: The API server has the newest pool; false while a change is on its way or refused.
        watching: The publisher notices edits at once; false while the watch is broken.
        watch_restarts: How often a broken watch was opened again.
        node_uid: UID of the Node; empty until it is read.
        devices: Number of devices in the pool that was accepted last.
        generation: Generation of that pool.
        dropped: Fields of slices that the API server does not store, such as `taints`.
        refused: The API server calls the newest pool invalid, which it may not have done before.
        problem: Why publishing is stuck; empty if it is not.
    """

    published: bool = False
    current: bool = False
    watching: bool = False
    watch_restarts: int = 0
    node_uid: str = ""
    devices: int = 0
    generation: int = 0
    dropped: frozenset[str] = frozenset()
    refused: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SliceWritten:
    """The API server was asked to write a slice; *error* says why it failed."""

    verb: Literal["create", "update", "delete"]
    error: KubeError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAccepted:
    """The API server has the newest pool."""


OnEvent: TypeAlias = Callable[[SliceWritten | PoolAccepted], object]


async def publish(
    client: KubeClient,
    *,
    node_name: str,
    driver_name: str,
    pool: Observable[PoolContent],
    status: Observable[PublisherStatus],
    on_event: OnEvent = lambda _: None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Publish *pool* until cancelled.

    The publisher retries every `KubeError`: an administrator may grant rights, the node may
    register, the API server may come back.

    Args:
        client: The API server; needs `get` on nodes, and list, watch, create, update and delete
            on resourceslices.
        node_name: The node, which is also the pool's name and the slices' owner.
        driver_name: As in DeviceClasses and ResourceSlices.
        pool: The wanted pool, without fields that the API server is known to drop.
        status: Kept up to date.
        on_event: Called for each write and each accepted pool.
        task_status: Started when the loop runs, not when the pool is accepted.
    """
    slices = NodeSlices(client, node_name, driver_name)
    async with trio.open_nursery() as nursery:
        publisher = _Publisher(slices, nursery, pool=pool, status=status, on_event=on_event)
        nursery.start_soon(publisher.follow_pool)
        task_status.started()
        await publisher.run()


class _Publisher:
    """The state of one `publish`."""

    def __init__(
        self,
        slices: NodeSlices,
        nursery: trio.Nursery,
        *,
        pool: Observable[PoolContent],
        status: Observable[PublisherStatus],
        on_event: OnEvent,
    ) -> None:
        self._slices = slices
        self._nursery = nursery
        self._pool = pool
        self._status = status
        self._on_event = on_event
        self._view: View[ResourceSlice] = View()
        self._settled: PoolContent | None = None
        # Our writes that the watch has not shown yet: the resourceVersion by name, None if deleted.
        self._unshown: dict[str, str | None] = {}
        self._change_pace = ChangePace()
        self._repairs = Backoff(limit=_REPAIR_LIMIT)
        self._repair_at = -inf
        self._news = trio.Event()

    async def follow_pool(self) -> None:
        """Wake the loop when the pool changes."""
        async for content in self._pool.changes():
            if content != self._settled:
                self._update_status(current=False)
            self._news.set()

    async def _follow_slices(self, listed: Listed) -> None:
        """Wake the loop when our slices become others than were *listed* just now."""
        async with aclosing(self._slices.views(listed)) as views:
            while True:
                # An open watch ends after a time. A broken one has no limit: it is retried.
                limit = _WATCH_STUCK_SECONDS if self._view.stale_since is None else inf
                with watchdog.step("watching ResourceSlices", limit=limit):
                    view = await anext(views)
                was_lost = self._view.synced and self._view.stale_since is not None
                if was_lost and view.stale_since is None:
                    if self._slices.forms.forget():
                        self._settled = None
                    self._update_status(watch_restarts=self._status.value.watch_restarts + 1)
                self._view = view
                self._forget_shown()
                self._update_status(watching=view.stale_since is None)
                self._news.set()

    async def run(self) -> None:
        """Reconcile after each change."""
        retry = Retry("publishing ResourceSlices", log)
        while True:
            self._news = trio.Event()
            pool = self._pool.value
            try:
                await self._reconcile()
            except InvalidPool as error:
                if str(error) != self._status.value.problem:
                    log.error(
                        "nothing is published until the pool changes", extra={"problem": str(error)}
                    )
                self._fail(error)
                await self._pool.wait_for_other(pool)
            except Invalid as error:
                self._fail(error)
                with trio.move_on_after(retry.failed(error)):
                    await self._pool.wait_for_other(pool)  # which the API server may accept
            except KubeError as error:
                self._fail(error)
                await trio.sleep(retry.failed(error))
            else:
                retry.recovered()
                await self._news.wait()

    async def _reconcile(self) -> None:
        listed = None
        if self._slices.owner is None:
            with watchdog.step("publishing ResourceSlices", limit=_RECONCILE_STUCK_SECONDS):
                listed, version = await self._slices.begin()
            self._nursery.start_soon(self._follow_slices, (listed, version))
            self._update_status()
        check(self._pool.value)  # an invalid pool must not cost a request
        if self._pool.value == self._settled:
            await self._wait_for_own_writes()
        if self._pool.value == self._settled:
            shown = self._shown()
            if shown is None or not self._slices.plan(shown, self._pool.value):
                self._update_status(current=True, problem="")
                self._on_event(PoolAccepted())  # the pool may have changed and changed back
                return
            # Back off while the edits go on; a new pool cuts the wait short.
            with trio.move_on_at(self._repair_at):
                await self._pool.wait_for_other(self._settled)
        if self._pool.value != self._settled:
            await self._change_pace.turn()
        content = self._pool.value
        is_repair = content == self._settled
        with watchdog.step("publishing ResourceSlices", limit=_RECONCILE_STUCK_SECONDS):
            slices, writes = await self._slices.read_and_plan(content, listed, self._shown())
            for write in writes:
                await self._perform(write)
        if writes:
            if is_repair:
                self._repair_at = trio.current_time() + self._repairs.failed()
            log.info(
                "slices repaired" if is_repair else "pool published",
                extra={"devices": len(content.devices), "writes": len(writes)},
            )
        self._settle(content, slices, writes)

    def _shown(self) -> Slices | None:
        """The slices as the watch shows them; None after a failure, or while it is behind."""
        is_doubtful = self._settled is None or self._unshown or not self._is_watching
        return None if is_doubtful else (*self._view.objects.values(),)

    @property
    def _is_watching(self) -> bool:
        """Whether a watch is open."""
        return self._view.synced and self._view.stale_since is None

    async def _wait_for_own_writes(self) -> None:
        """Wait until the watch shows our writes, or for `_LAG_SECONDS`, or for other work.

        The watch shows a write about when the API server answers it, often later. A view from
        before looks as if the write had been undone, and would cost another list. But the watch may
        never show our version: another client can overwrite it before we have the answer.
        """
        with trio.move_on_after(_LAG_SECONDS) as lag:
            while self._unshown and self._is_watching and self._pool.value == self._settled:
                await self._news.wait()
                self._news = trio.Event()
        if lag.cancelled_caught:
            self._unshown.clear()

    def _forget_shown(self) -> None:
        shown = {name: item.metadata.resource_version for name, item in self._view.objects.items()}
        self._unshown = {
            name: version for name, version in self._unshown.items() if shown.get(name) != version
        }

    async def _perform(self, write: Write) -> None:
        try:
            name, version = await self._slices.send(write)
        except KubeError as error:
            self._on_event(SliceWritten(verb=write.verb, error=error))
            raise
        self._unshown[name] = version
        self._forget_shown()
        self._on_event(SliceWritten(verb=write.verb, error=None))

    def _fail(self, error: KubeError | InvalidPool) -> None:
        # Even a write that failed may have happened: no pool counts as stored until a look.
        self._settled = None
        self._update_status(current=False, refused=isinstance(error, Invalid), problem=str(error))

    def _settle(self, content: PoolContent, slices: Slices, writes: tuple[Write, ...]) -> None:
        self._settled = content
        is_newest = content == self._pool.value
        gone = [write.slice for write in writes if write.verb == "delete"]
        written = [write.slice for write in writes if write.verb != "delete"]
        newest = max(item.spec.pool.generation for item in written or slices if item not in gone)
        self._update_status(
            published=True,
            current=is_newest,
            devices=len(content.devices),
            generation=newest,
            dropped=self._slices.forms.dropped,
            refused=False,
            problem="",
        )
        if is_newest:
            self._on_event(PoolAccepted())

    def _update_status(self, **changes: bool | int | str | frozenset[str]) -> None:
        owner = self._slices.owner
        status = replace(self._status.value, node_uid=owner.uid if owner is not None else "")
        self._status.set(replace(status, **changes))  # type: ignore[arg-type] # by name
