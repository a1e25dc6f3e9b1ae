"""Counts repetitions in one Event instead of writing many; pure, on the caller's clock.

For each object, reason and chip the API server gets one write without delay, and then at most one
each `PAUSE_SECONDS`, with the newest message and the whole count.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from trio_npu_dra.agent.report.news import News, Reason
from trio_npu_dra.kit.api.events import Event, EventSource, ObjectReference
from trio_npu_dra.kit.api.objects import ObjectMeta, rfc3339

PAUSE_SECONDS: Final = 10.0
"""Between two writes of one series, at least."""

QUIET_SECONDS: Final = 600.0
"""After so long without a repetition, the next one begins a new series."""

PATIENCE_SECONDS: Final = 300.0
"""How long an Event is kept while the API server does not take it."""

_NAME_BASE_LIMIT: Final = 230  # a name has 253 characters, and 17 are added


@dataclass(slots=True)
class _Series:
    event: Event
    noted_at: float
    unsaid_since: float | None
    write_at: float
    is_stored: bool = False


class EventSeries:
    """The Events of one node's NPUs; *component* is the driver's name."""

    def __init__(self, *, component: str, node_name: str) -> None:
        self._component = component
        self._node_name = node_name
        self._series: dict[tuple[str, Reason, str], _Series] = {}

    def note(self, news: News, about: Iterable[ObjectReference], *, at: float, now: float) -> None:
        """Note that something happened, *at* seconds since 1970, of which *about* get an Event."""
        for key, old in list(self._series.items()):
            if old.unsaid_since is None and now - old.noted_at >= QUIET_SECONDS:
                del self._series[key]
        clock = rfc3339(at)
        for reference in about:
            key = (reference.uid, news.reason, news.about)
            series = self._series.get(key)
            if series is None:
                event = self._event(news, reference, clock)
                self._series[key] = _Series(event, noted_at=now, unsaid_since=now, write_at=now)
                continue
            series.event = series.event.model_copy(
                update={
                    "message": news.message,
                    "count": series.event.count + 1,
                    "last_timestamp": clock,
                }
            )
            series.noted_at = now
            if series.unsaid_since is None:
                series.unsaid_since = now

    def due(self, now: float) -> tuple[Event, bool] | None:
        """The Event to write now that has waited longest, and whether it was written before."""
        waiting = [series for series in self._waiting() if series.write_at <= now]
        oldest = min(waiting, key=lambda series: series.write_at, default=None)
        return (oldest.event, oldest.is_stored) if oldest else None

    @property
    def next_due(self) -> float | None:
        """When `due` next returns an Event if nothing else happens; None if never."""
        return min((series.write_at for series in self._waiting()), default=None)

    def stored(self, event: Event, now: float) -> None:
        """Note that the API server has *event*."""
        for series in self._of(event):
            series.is_stored = True
            series.write_at = now + PAUSE_SECONDS
            series.unsaid_since = None if series.event == event else now

    def drop(self, event: Event) -> None:
        """Forget an Event that the API server does not want."""
        for key in [key for key, series in self._series.items() if series in self._of(event)]:
            del self._series[key]

    def drop_old(self, now: float) -> int:
        """Forget Events that the API server has not taken for too long; return how many."""
        old = [
            key
            for key, series in self._series.items()
            if series.unsaid_since is not None
            and now - max(series.unsaid_since, series.write_at) >= PATIENCE_SECONDS
        ]
        for key in old:
            del self._series[key]
        return len(old)

    def _event(self, news: News, about: ObjectReference, clock: str) -> Event:
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
            source=EventSource(component=self._component, host=self._node_name),
            reporting_component=self._component,
            reporting_instance=self._node_name,
        )

    def _waiting(self) -> Iterable[_Series]:
        return [series for series in self._series.values() if series.unsaid_since is not None]

    def _of(self, event: Event) -> list[_Series]:
        return [
            series for series in self._series.values() if series.event.metadata == event.metadata
        ]
