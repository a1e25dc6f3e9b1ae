"""Counters and histograms of what happens, fed with facts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.agent.devices.npu_status import ClaimStatusWritten
from trio_npu_dra.agent.observe import catalog
from trio_npu_dra.agent.observe.catalog import Definition
from trio_npu_dra.ascend.dcmi.types import Assertion, DcmiCall, FaultEvent
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.kit.base.errors import KubeError
from trio_npu_dra.kit.pool import SliceWritten

# `_created` doubles the number of series, and no query needs it.
disable_created_metrics()  # type: ignore[no-untyped-call] # has no annotations

_OK: Final = "ok"


class Metrics:
    """The metrics of one daemon, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._calls = self._histogram(catalog.CALL_SECONDS)
        self._claims = self._counter(catalog.CLAIMS)
        self._claim_errors = self._counter(catalog.CLAIM_ERRORS)
        self._status_writes = self._counter(catalog.CLAIM_STATUS_WRITES)
        self._slice_writes = self._counter(catalog.SLICE_WRITES)
        self._events = self._counter(catalog.FAULT_EVENTS)
        self._dcmi_calls = self._histogram(catalog.DCMI_SECONDS)
        self._dcmi_errors = self._counter(catalog.DCMI_ERRORS)
        self._latency = self._histogram(catalog.EVENT_TO_PUBLISH)
        # A rate needs the zero before the first one.
        for operation in ("prepare", "unprepare"):
            self._calls.labels(operation)
            self._claims.labels(operation)
        self._status_writes.labels(_OK)
        for assertion in Assertion:
            self._events.labels(assertion.name.lower())
        for verb in ("create", "update", "delete"):
            self._slice_writes.labels(verb, _OK)

    def note(self, fact: object) -> None:
        """Count a fact of a kind that is named here; calls of DCMI come on their own thread."""
        match fact:
            case DcmiCall(function=function, seconds=seconds, code=code):
                self._dcmi_calls.labels(function).observe(seconds)
                if code != 0:
                    self._dcmi_errors.labels(function, str(code)).inc()
            case CallAnswered(operation=operation, seconds=seconds, claims=claims, errors=errors):
                self._calls.labels(operation).observe(seconds)
                self._claims.labels(operation).inc(claims)
                for error in errors:
                    self._claim_errors.labels(operation, type(error).__name__).inc()
            case FaultEvent(assertion=assertion):
                name = assertion.name.lower() if assertion is not None else "unknown"
                self._events.labels(name).inc()
            case ClaimStatusWritten(error=refusal):
                self._status_writes.labels(_result(refusal)).inc()
            case SliceWritten(verb=verb, error=refusal):
                self._slice_writes.labels(verb, _result(refusal)).inc()
            case EventPublished(seconds=seconds):
                self._latency.observe(seconds)

    def _counter(self, metric: Definition) -> Counter:
        return Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)

    def _histogram(self, metric: Definition) -> Histogram:
        return Histogram(
            metric.name,
            metric.meaning,
            metric.labels,
            buckets=metric.buckets,
            registry=self.registry,
        )


def _result(refusal: KubeError | None) -> str:
    return _OK if refusal is None else type(refusal).__name__


@dataclass(frozen=True, slots=True)
class EventPublished:
    """A fault event led to another pool, which the API server has accepted."""

    seconds: float  # since the event arrived


class EventLatency:
    """Measures from the oldest event that is not published yet.

    *clock* is the clock of `FaultEvent.heard_at`.
    """

    def __init__(
        self,
        on_event: Callable[[EventPublished], object],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_event = on_event
        self._clock = clock
        self._heard_at: float | None = None
        self._board = EMPTY_BOARD

    def pool_made(self, board: Board, *, is_late: bool) -> None:
        """Note that a pool was made of a Board, perhaps again because something else changed.

        *is_late* says whether the API server has another pool.
        """
        is_another, self._board = board is not self._board, board
        if is_late and is_another and self._heard_at is None:
            self._heard_at = board.heard_at

    def pool_accepted(self) -> None:
        """Note that the API server has the newest pool."""
        if self._heard_at is not None:
            self._on_event(EventPublished(self._clock() - self._heard_at))
        self._heard_at = None
