"""Kubernetes Events on the Node, on claims that hold the NPU, and on claims of several pods.

There is one Event for each object, reason and chip, which counts repetitions. A restart repeats no
Event of an NPU.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

import trio

from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind, SharedClaim, holds_of
from trio_npu_dra.agent.report.news import News, Reason, news, record_news, shared_news
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.events import Event, EventSource, ObjectReference
from trio_npu_dra.kit.api.objects import Node, ObjectMeta, ResourceClaim, rfc3339
from trio_npu_dra.kit.base import watchdog
from trio_npu_dra.kit.base.errors import Conflict, KubeError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.base.pace import Retry
from trio_npu_dra.kit.pool import PublisherStatus

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 10.0
"""Between two writes of one Event, at least."""

QUIET_SECONDS: Final = 600.0
"""After so long without a repetition, the next one is a new Event."""

_STUCK_SECONDS: Final = 60.0  # two requests, each of which has a deadline of its own
_NAME_BASE_LIMIT: Final = 230  # a name has 253 characters, and 17 are added


async def write_events(
    client: KubeClient,
    board: Observable[Board],
    holds: Observable[tuple[Hold, ...]],
    shared: Observable[Mapping[str, SharedClaim]],
    set_aside: Observable[Mapping[str, str]],
    *,
    node_name: str,
    publisher: Observable[PublisherStatus],
    component: str,
    since: float,
) -> NoReturn:
    """Write Events of the NPUs, until cancelled.

    It needs `create` and `update` on events. Claims that hold an NPU get its Events too, and claims
    in *shared* one of their own, and the Node one of records that are *set_aside*. An earlier
    daemon has written the Events of faults that began before *since*, the start of this one in
    seconds since 1970.
    """
    node = ObjectReference(
        api_version=Node.group_version,
        kind=Node.kind_name,
        name=node_name,
        uid=(await publisher.wait_until(lambda status: bool(status.node_uid))).node_uid,
    )

    async def listen(events: _Events) -> None:
        before = EMPTY_BOARD
        async for after in board.changes():
            for item in news(before, after, holds.value, since=since):
                if item.reason is Reason.POLICY_CHANGED:
                    log.warning("how NPUs are handed out has changed", extra={"news": item.message})
                events.note(item, (node, *_holders(item, holds.value)))
            before = after

    async def listen_to_claims(events: _Events) -> None:
        before: Mapping[str, SharedClaim] = {}
        async for after in shared.changes():
            for claim in after.values():
                item = shared_news(claim, board.value, holds.value)
                if item is not None and before.get(claim.holder.uid) != claim:
                    events.note(item, (_claim(claim.holder),))
            before = after

    async with trio.open_nursery() as nursery:
        events = _Events(client, nursery, component, node_name)
        nursery.start_soon(listen, events)
        nursery.start_soon(listen_to_claims, events)
        nursery.start_soon(_tell_of_records, events, set_aside, node)
    raise AssertionError  # changes of an Observable never end


async def _tell_of_records(
    events: _Events, set_aside: Observable[Mapping[str, str]], node: ObjectReference
) -> None:
    known: Mapping[str, str] = {}
    async for found in set_aside.changes():
        if found.keys() - known.keys():
            events.note(record_news(found), (node,))
        known = found


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


@dataclass
class _Series:
    """An Event that counts repetitions; *changed* is set while the API server lacks the newest."""

    event: Event
    is_stored: bool = False
    changed: trio.Event = field(default_factory=trio.Event)


@dataclass
class _Events:
    """The Events of a node's NPUs, each kept at the API server by a task of its own."""

    client: KubeClient
    nursery: trio.Nursery
    component: str
    node_name: str
    series: dict[tuple[str, Reason, str], _Series] = field(default_factory=dict)
    writing: trio.Lock = field(default_factory=trio.Lock)
    retry: Retry = field(default_factory=lambda: Retry("writing Events", log))

    def note(self, news: News, about: Iterable[ObjectReference]) -> None:
        """Note that something happened now, of which *about* get an Event."""
        clock = rfc3339(time.time())
        for reference in about:
            key = (reference.uid, news.reason, news.about)
            series = self.series.get(key)
            if series is not None:
                count = series.event.count + 1
                again = {"message": news.message, "count": count, "last_timestamp": clock}
                series.event = series.event.model_copy(update=again)
                series.changed.set()
                continue
            event = new_event(news, reference, clock, self.component, self.node_name)
            self.series[key] = _Series(event)
            self.nursery.start_soon(self._keep, key)

    async def _keep(self, key: tuple[str, Reason, str]) -> None:
        """Write an Event at once, and again when it has changed, until it is quiet for long."""
        series = self.series[key]
        series.changed.set()
        while series.changed.is_set():
            await self._write(series)
            with trio.move_on_after(QUIET_SECONDS):
                await trio.sleep(PAUSE_SECONDS)
                await series.changed.wait()
        del self.series[key]

    async def _write(self, series: _Series) -> None:
        """Write the newest state of an Event; the others wait, so that one task retries."""
        async with self.writing:
            series.changed = trio.Event()
            while True:
                try:
                    with watchdog.step("writing an Event", limit=_STUCK_SECONDS):
                        await self._send(series)
                except KubeError as error:
                    if error.retryable:
                        await trio.sleep(self.retry.failed(error))
                        continue
                    about = series.event.involved_object
                    text = f"{series.event.reason} on {about.kind} {about.name}"
                    told = {"event": f"{text}: {series.event.message}", "error": str(error)}
                    log.warning("Event not written", extra=told)
                else:
                    self.retry.recovered()
                return

    async def _send(self, series: _Series) -> None:
        event = series.event
        try:
            if not series.is_stored:
                await self.client.create(event)
            else:
                await self.client.update(event)  # creates it again if it was deleted meanwhile
        except Conflict:  # an earlier try created it, and the answer was lost
            await self.client.update(event)
        series.is_stored = True


def new_event(
    news: News, about: ObjectReference, clock: str, component: str, node_name: str
) -> Event:
    """An Event of what happened once; *clock* is when, in RFC 3339."""
    base = about.name[:_NAME_BASE_LIMIT].rstrip("-.")
    return Event(
        metadata=ObjectMeta(
            name=f"{base}.{secrets.token_hex(8)}", namespace=about.namespace or "default"
        ),
        involved_object=about,
        type="Normal" if news.reason.is_normal else "Warning",
        reason=news.reason,
        message=news.message,
        count=1,
        first_timestamp=clock,
        last_timestamp=clock,
        source=EventSource(component=component, host=node_name),
        reporting_component=component,
        reporting_instance=node_name,
    )
