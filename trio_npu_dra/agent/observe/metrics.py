"""Metrics of what happens: counters and histograms, fed with facts."""

from __future__ import annotations

from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.agent.observe import catalog
from trio_npu_dra.agent.observe.catalog import Definition
from trio_npu_dra.agent.observe.inbox import EventPublished, Fact
from trio_npu_dra.ascend.dcmi.calls import DcmiCall
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent
from trio_npu_dra.kit.pool import SliceWritten

# `_created` doubles the number of series and nobody queries it.
disable_created_metrics()  # type: ignore[no-untyped-call] # has no annotations

_OK: Final = "ok"


class Metrics:
    """The metrics of one daemon, in a registry of their own.

    Attributes:
        registry: All of them.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self.registry)
        self._calls = self._histogram(catalog.CALL_SECONDS)
        self._claims = self._counter(catalog.CLAIMS)
        self._claim_errors = self._counter(catalog.CLAIM_ERRORS)
        self._slice_writes = self._counter(catalog.SLICE_WRITES)
        self._events = self._counter(catalog.FAULT_EVENTS)
        self._dcmi_calls = self._histogram(catalog.DCMI_SECONDS)
        self._dcmi_errors = self._counter(catalog.DCMI_ERRORS)
        self._latency = self._histogram(catalog.EVENT_TO_PUBLISH)
        # A rate needs the zero before the first one.
        for operation in ("prepare", "unprepare"):
            self._calls.labels(operation)
            self._claims.labels(operation)
        for assertion in Assertion:
            self._events.labels(assertion.name.lower())
        for verb in ("create", "update", "delete"):
            self._slice_writes.labels(verb, _OK)

    def note(self, fact: Fact) -> None:
        """Something happened; calls of DCMI tell it on their own thread."""
        match fact:
            case DcmiCall():
                self._dcmi_called(fact)
            case CallAnswered():
                self._call_answered(fact)
            case FaultEvent():
                self._event_heard(fact)
            case SliceWritten():
                result = _OK if fact.error is None else type(fact.error).__name__
                self._slice_writes.labels(fact.verb, result).inc()
            case EventPublished():
                self._latency.observe(fact.seconds)

    def _call_answered(self, call: CallAnswered) -> None:
        self._calls.labels(call.operation).observe(call.seconds)
        self._claims.labels(call.operation).inc(call.claims)
        for error in call.errors:
            self._claim_errors.labels(call.operation, type(error).__name__).inc()

    def _dcmi_called(self, call: DcmiCall) -> None:
        self._dcmi_calls.labels(call.function).observe(call.seconds)
        if call.code != 0:
            self._dcmi_errors.labels(call.function, str(call.code)).inc()

    def _event_heard(self, event: FaultEvent) -> None:
        assertion = event.assertion.name.lower() if event.assertion is not None else "unknown"
        self._events.labels(assertion).inc()

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
