"""The latency starts at the oldest event that was not published yet."""

from __future__ import annotations

import pytest

from trio_npu_dra.agent.observe.metrics import EventLatency, EventPublished
from trio_npu_dra.ascend.model import Board

ACCEPTED = "accepted"


@pytest.mark.parametrize(
    ("story", "measured"),
    [
        ([(1, 0.5), (3, ACCEPTED)], [2.5]),
        ([(1, 0.5), (2, 1.5), (3, ACCEPTED)], [2.5]),
        ([(1, 0.5), (2, None), (3, ACCEPTED)], [2.5]),
        ([(1, None), (2, 1.5), (3, ACCEPTED)], [1.5]),
        ([(1, None), (3, ACCEPTED)], []),
        ([(1, 0.5), (2, ACCEPTED), (3, ACCEPTED)], [1.5]),
        ([(1, 0.5), (2, ACCEPTED), (3, 2.5), (4, ACCEPTED)], [1.5, 1.5]),
    ],
    ids=["one", "two", "event, then poll", "poll, then event", "poll", "once", "again"],
)
def test_latency_is_that_of_the_oldest_event(
    story: list[tuple[float, float | str | None]], measured: list[float]
) -> None:
    """Pools that change without an event are not measured, and do not hide one."""
    published: list[EventPublished] = []
    now = 0.0
    latency = EventLatency(published.append, clock=lambda: now)
    for at, happened in story:
        now = at
        if isinstance(happened, str):
            latency.pool_accepted()
        else:
            latency.pool_made(Board(heard_at=happened), is_late=True)

    assert [event.seconds for event in published] == measured


def test_an_event_counts_for_the_pool_that_its_board_made() -> None:
    """Not for one that changes much later, because an NPU was released."""
    published: list[EventPublished] = []
    latency = EventLatency(published.append, clock=lambda: 100.0)
    board = Board(heard_at=1.0)
    latency.pool_made(board, is_late=False)
    latency.pool_made(board, is_late=True)
    latency.pool_accepted()
    assert published == []
