"""Occurrences that events and a list of codes show at different times, each counted once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.ascend.code_memory import PATIENCE, Occurrences
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent

START = 1_000_000.0


def event(assertion: Assertion, raised_at: float) -> FaultEvent:
    """An event of the code."""
    return FaultEvent(logic_id=0, code=1, severity=None, assertion=assertion, raised_at=raised_at)


@dataclass
class Story:
    """The breaks of one code, and when events and lists show them.

    Attributes:
        breaks: Seconds until the code comes, and goes, in turn.
        event_lag: Seconds by which events are late.
        list_lag: Seconds by which the list is.
        looks: Seconds between two readings of the list.
    """

    breaks: list[float]
    event_lag: float
    list_lag: float
    looks: list[float]

    def counted(self, *, has_events: bool = True) -> tuple[int, int]:
        """How often the code came, and how often it was counted."""
        occurrences = Occurrences()
        steps: list[tuple[float, int, Assertion | None, float]] = []
        at = raised_at = START
        changes = []
        for number, pause in enumerate(self.breaks):
            at += pause
            is_coming = number % 2 == 0
            raised_at = at if is_coming else raised_at
            changes.append((at, is_coming))
            if has_events:
                what = Assertion.OCCURRENCE if is_coming else Assertion.RECOVERY
                steps.append((at + self.event_lag, 0, what, raised_at))
        look = START
        for pause in self.looks:
            look += pause
            steps.append((look, 1, None, 0.0))
        counted = 0
        for now, _, assertion, raised_at in sorted(steps, key=lambda step: step[:2]):
            if assertion is not None:
                counted += occurrences.hear(event(assertion, raised_at), now)
            else:
                before = [is_coming for at, is_coming in changes if at + self.list_lag <= now]
                counted += occurrences.see(now, is_listed=bool(before) and before[-1])
        return (len(self.breaks) + 1) // 2, counted


seconds = st.floats(0.01, 2.0)
stories = st.builds(
    Story,
    breaks=st.lists(seconds, max_size=10),
    event_lag=st.floats(0.0, 3.0),
    list_lag=st.floats(0.0, 3.0),
    looks=st.lists(seconds, max_size=30),
)


@given(stories)
def test_each_occurrence_counts_once(story: Story) -> None:
    """Whether event or list is ahead, and also if the list misses it."""
    came, counted = story.counted()
    assert counted == came


@given(stories)
def test_a_list_without_events_counts_nothing_twice(story: Story) -> None:
    """It misses what comes and goes between two readings."""
    came, counted = story.counted(has_events=False)
    assert counted <= came


def test_a_lost_event_swallows_no_later_occurrence() -> None:
    """A minute after the list alone has shown one, an event counts again."""
    occurrences = Occurrences()
    assert occurrences.see(START, is_listed=True)
    assert not occurrences.see(START + 1, is_listed=False)
    assert not occurrences.is_over(START + PATIENCE)
    assert occurrences.is_over(START + 1 + PATIENCE)
    assert occurrences.hear(event(Assertion.OCCURRENCE, START + 1), START + 1 + PATIENCE)


def test_the_end_of_an_old_code_is_no_occurrence() -> None:
    """It began before the subscription; the next occurrence is a new one."""
    occurrences = Occurrences()
    assert occurrences.see(START, is_listed=True)
    assert not occurrences.hear(event(Assertion.RECOVERY, START - 50), START + 1)
    assert not occurrences.see(START + 1, is_listed=False)
    assert occurrences.hear(event(Assertion.OCCURRENCE, START + 2), START + 2)


def test_a_repeated_event_counts_once() -> None:
    """Known by its time before the list has the code, by the list afterwards."""
    occurrences = Occurrences()
    assert occurrences.hear(event(Assertion.OCCURRENCE, START), START)
    assert not occurrences.hear(event(Assertion.OCCURRENCE, START), START + 1)
    assert not occurrences.see(START + 2, is_listed=True)
    assert not occurrences.hear(event(Assertion.OCCURRENCE, START + 3), START + 3)
