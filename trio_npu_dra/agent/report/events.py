"""Kubernetes Events on the Node, on claims that hold the NPU, and on claims of several pods.

A restart repeats no Event of an NPU. One that cannot be written within minutes is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind, SharedClaim, holds_of
from trio_npu_dra.agent.report.event_series import EventSeries
from trio_npu_dra.agent.report.news import News, Reason, news, shared_news
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.events import Event, ObjectReference
from trio_npu_dra.kit.api.objects import Node, ResourceClaim
from trio_npu_dra.kit.api.retry import Retry
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import Conflict, KubeError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PublisherStatus

log = logging.getLogger(__name__)

_STUCK_SECONDS: Final = 60.0  # two requests, each of which has a deadline of its own


async def write_events(
    client: KubeClient,
    board: Observable[Board],
    holds: Observable[tuple[Hold, ...]],
    shared: Observable[Mapping[str, SharedClaim]],
    *,
    node_name: str,
    publisher: Observable[PublisherStatus],
    component: str,
    since: float,
) -> NoReturn:
    """Write Events of the NPUs, until cancelled.

    It needs `create` and `update` on events. Claims that hold an NPU get its Events too, and claims
    in *shared* one of their own. An earlier daemon has written the Events of faults that began
    before *since*, the start of this one in seconds since 1970.
    """
    retry = Retry("writing Events", log)
    node = ObjectReference(
        api_version=Node.group_version,
        kind=Node.kind_name,
        name=node_name,
        uid=(await publisher.wait_until(lambda status: bool(status.node_uid))).node_uid,
    )
    series = EventSeries(component=component, node_name=node_name)
    arrived = trio.Event()

    async def listen() -> None:
        nonlocal arrived
        before = EMPTY_BOARD
        async for after in board.changes():
            for item in news(before, after, holds.value, since=since):
                if item.reason is Reason.POLICY_CHANGED:
                    log.warning("how NPUs are handed out has changed", extra={"news": item.message})
                about = (node, *_holders(item, holds.value))
                series.note(item, about, at=time.time(), now=trio.current_time())
            before = after
            arrived.set()

    async def listen_to_claims() -> None:
        nonlocal arrived
        before: Mapping[str, SharedClaim] = {}
        async for after in shared.changes():
            for claim in after.values():
                item = shared_news(claim, board.value, holds.value)
                if item is not None and before.get(claim.holder.uid) != claim:
                    about = (_claim(claim.holder),)
                    series.note(item, about, at=time.time(), now=trio.current_time())
            before = after
            arrived.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        nursery.start_soon(listen_to_claims)
        while True:
            with trio.move_on_at(inf if (due := series.next_due) is None else due):
                await arrived.wait()
            arrived = trio.Event()
            await _write_due(client, series, retry)


def _holders(item: News, holds: Iterable[Hold]) -> list[ObjectReference]:
    """The claims that hold the chip."""
    holders = dict.fromkeys(hold.holder for hold in holds_of(item.nodes, holds))
    return [_claim(holder) for holder in holders if holder.kind is HolderKind.CLAIM]


def _claim(holder: Holder) -> ObjectReference:
    return ObjectReference(
        api_version=ResourceClaim.group_version,
        kind=ResourceClaim.kind_name,
        namespace=holder.namespace,
        name=holder.name,
        uid=holder.uid,
    )


async def _write_due(client: KubeClient, series: EventSeries, retry: Retry) -> None:
    """Write Events that are due; an Event waits while the API server takes none."""
    while (due := series.due(trio.current_time())) is not None:
        event, is_stored = due
        try:
            with watchdog.step("writing an Event", limit=_STUCK_SECONDS):
                await _write(client, event, is_stored=is_stored)
        except KubeError as error:
            if not error.retryable:
                series.drop(event)
                about = event.involved_object
                text = f"{event.reason} on {about.kind} {about.name}: {event.message}"
                log.warning("Event not written", extra={"event": text, "error": str(error)})
                continue
            await trio.sleep(retry.failed(error))
            if dropped := series.drop_old(trio.current_time()):
                log.warning("Events dropped, the API server is away", extra={"events": dropped})
        else:
            retry.recovered()
            series.stored(event, trio.current_time())


async def _write(client: KubeClient, event: Event, *, is_stored: bool) -> None:
    if is_stored:
        await client.update(event)  # creates it again if it was deleted meanwhile
        return
    try:
        await client.create(event)
    except Conflict:  # an earlier try created it, and the answer was lost
        await client.update(event)
