"""One Event for what repeats, and how often it is written."""

from __future__ import annotations

import pytest

from trio_npu_dra.agent.report.event_series import (
    PAUSE_SECONDS,
    QUIET_SECONDS,
    EventSeries,
)
from trio_npu_dra.agent.report.news import News, Reason
from trio_npu_dra.kit.api.events import ObjectReference

NODE = ObjectReference(api_version="v1", kind="Node", name="node-a", uid="n")
CLAIM = ObjectReference(
    api_version="resource.k8s.io/v1", kind="ResourceClaim", namespace="ml", name="c", uid="c"
)
FAULT = News(about="npu-3", reason=Reason.FAULT, message="npu-3: first words")
AGAIN = News(about="npu-3", reason=Reason.FAULT, message="npu-3: newer words")
NOON = 1_795_262_400.0


def series() -> EventSeries:
    """Without Events yet."""
    return EventSeries(component="npu.huawei.com", node_name="node-a")


def write_all(these: EventSeries, now: float) -> list[tuple[str, int, bool]]:
    """Write what is due: object, count and whether it was there."""
    written = []
    while (due := these.due(now)) is not None:
        event, is_stored = due
        written.append((event.involved_object.kind, event.count, is_stored))
        these.stored(event, now)
    return written


def test_an_event_has_what_describe_shows() -> None:
    """Type, reason, age, source and message, in the object's namespace or `default`."""
    these = series()
    recovered = News(about="npu-3", reason=Reason.RECOVERED, message="")
    these.note(recovered, [CLAIM], at=NOON, now=0)
    event, _ = these.due(0) or pytest.fail("nothing is due")
    assert (event.type, event.metadata.namespace) == ("Normal", "ml")
    these.stored(event, 0)
    these.note(FAULT, [NODE], at=NOON, now=0)
    event, _ = these.due(0) or pytest.fail("nothing is due")
    wire = event.to_wire()

    name = wire["metadata"].pop("name")
    assert name.startswith("node-a.")
    assert wire == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "n"},
        "type": "Warning",
        "reason": "NpuFault",
        "message": "npu-3: first words",
        "count": 1,
        "firstTimestamp": "2026-11-21T12:00:00Z",
        "lastTimestamp": "2026-11-21T12:00:00Z",
        "source": {"component": "npu.huawei.com", "host": "node-a"},
        "reportingComponent": "npu.huawei.com",
        "reportingInstance": "node-a",
    }


def test_a_repetition_counts_in_the_same_event_after_a_pause() -> None:
    """Without delay the first time, then every ten seconds with the newest words and all counts."""
    these = series()
    these.note(FAULT, [NODE, CLAIM], at=NOON, now=0)
    assert write_all(these, 0) == [("Node", 1, False), ("ResourceClaim", 1, False)]

    for second in range(1, 9):
        these.note(AGAIN, [NODE], at=NOON + second, now=second)
        assert write_all(these, second) == []

    assert these.next_due == PAUSE_SECONDS
    event, _ = these.due(PAUSE_SECONDS) or pytest.fail("nothing is due")
    assert event.message == "npu-3: newer words"
    assert (event.first_timestamp, event.last_timestamp) == (
        "2026-11-21T12:00:00Z",
        "2026-11-21T12:00:08Z",
    )
    assert write_all(these, PAUSE_SECONDS) == [("Node", 9, True)]
    assert these.next_due is None


def test_what_happens_during_a_write_is_written_later() -> None:
    """The newest truth is never taken for one that was written."""
    these = series()
    these.note(FAULT, [NODE], at=NOON, now=0)
    event, _ = these.due(0) or pytest.fail("nothing is due")
    these.note(AGAIN, [NODE], at=NOON, now=0)
    these.stored(event, 1)

    assert write_all(these, 1) == []
    assert write_all(these, 1 + PAUSE_SECONDS) == [("Node", 2, True)]


def test_after_a_quiet_time_it_is_a_new_event() -> None:
    """What happened yesterday is another story, and nothing is kept of it."""
    these = series()
    these.note(FAULT, [NODE], at=NOON, now=0)
    write_all(these, 0)
    these.note(FAULT, [NODE], at=NOON, now=QUIET_SECONDS)

    assert write_all(these, QUIET_SECONDS) == [("Node", 1, False)]


def test_a_long_name_leaves_room() -> None:
    """An Event's name may have 253 characters."""
    these = series()
    long = NODE.model_copy(update={"name": "a" * 229 + "-" + "b" * 23})
    these.note(FAULT, [long], at=NOON, now=0)
    event, _ = these.due(0) or pytest.fail("nothing is due")
    assert len(event.metadata.name) <= 253
    assert "-." not in event.metadata.name
