"""When a chip's faults began and change, and how long something is remembered of them."""

from __future__ import annotations

import pytest

from tests.ascend.test_chip_faults import (
    BUSINESS,
    DAY,
    LINK,
    PLAIN,
    START,
    TWICE,
    chip,
    come_and_go,
    event,
    listing,
)
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.code_memory import CodeMemory
from trio_npu_dra.ascend.dcmi.types import Assertion, Severity
from trio_npu_dra.ascend.faults import CARD_DROPPED, FaultTable, packaged_table
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.kit.base.health import HealthState

TABLE = FaultTable.parse(
    """{
    "about": "",
    "levels": {"NotHandleFault": ["A1", "A2"]},
    "frequency": [{"codes": ["A1"], "level": "ManuallySeparateNPU",
        "times": 2, "window_seconds": 1000, "release_seconds": 100}],
    "duration": [{"codes": ["A2"], "level": "PreSeparateNPU",
        "fault_seconds": 20, "recover_seconds": 60}]
    }"""
)
"""A rule whose window is longer than it speaks, and another code's."""


# --- since when ----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0.5, 60.0, 299.0])
def test_an_event_that_is_late_tells_when_its_fault_came(late: float) -> None:
    """Not the look that it led to."""
    faults = chip()
    faults.note(event(BUSINESS, at=START - late), START)
    faults.take(listing(BUSINESS), START)
    assert faults.health(START).faults[0].since == START - late


def test_a_fault_that_lasted_is_as_old_as_before() -> None:
    """The rule that spoke makes it no younger, and has nothing more to say."""
    faults = chip()
    faults.take(listing(LINK), START)
    (fault,) = faults.health(START + 20).faults
    assert (fault.rule, fault.since) == ("lasted 20 s", START)
    assert faults.next_change is None


def test_an_npu_is_separated_since_its_rule_spoke() -> None:
    """Further occurrences neither change that nor put its end off."""
    faults = chip()
    for hour in range(6):
        come_and_go(faults, LINK, START + 3600 * hour, seconds=20)
    (fault,) = faults.health(START + 6 * 3600).faults
    assert fault.since == START + 4 * 3600 + 20
    assert faults.next_change == START + 4 * 3600 + 20 + 2 * DAY


def test_words_once_known_stay() -> None:
    """The library does not find them each time."""
    faults = chip()
    faults.take(listing(BUSINESS), START)
    faults.take(HealthSample(codes={BUSINESS: ""}, severity=Severity.MAJOR), START + 1)
    assert faults.health(START + 1).faults[0].text == f"words {BUSINESS:X}"


# --- what the next look or moment brings ---------------------------------------------------------


def test_one_occurrence_that_is_told_again_counts_once() -> None:
    """By a second event without a recovery between."""
    faults = chip()
    for _ in range(2):
        faults.note(event(TWICE), START)
        faults.take(listing(TWICE), START)
    assert faults.memory[TWICE].occurred == (START,)


def test_a_recovery_that_the_list_agrees_with_asks_for_no_look() -> None:
    """Nor does that of a code which was not there."""
    faults = chip()
    faults.take(listing(BUSINESS), START)
    faults.note(event(BUSINESS, Assertion.RECOVERY), START + 10)
    faults.note(event(PLAIN, Assertion.RECOVERY), START + 10)
    faults.take(listing(), START + 10)
    assert faults.recheck_at is None


def test_of_two_recoveries_the_first_decides_when_to_look() -> None:
    """A second after it."""
    faults = chip()
    faults.take(listing(PLAIN, BUSINESS), START)
    for code, at in ((PLAIN, START + 10), (BUSINESS, START + 10.5)):
        faults.note(event(code, Assertion.RECOVERY), at)
        faults.take(listing(PLAIN, BUSINESS), at)
    assert faults.recheck_at == START + 11


def test_the_first_change_of_all_codes_and_rules_is_the_next() -> None:
    """Here a link that is down again since it separated its NPU; then one code of two."""
    faults, two = chip(), ChipFaults(TABLE)
    for hour in range(5):
        come_and_go(faults, LINK, START + 3600 * hour, seconds=20)
    faults.take(listing(LINK), START + 5 * 3600)
    assert faults.next_change == START + 5 * 3600 + 20
    come_and_go(two, 0xA1, START)
    come_and_go(two, 0xA1, START + 10)
    two.take(listing(0xA2), START + 10)
    assert two.next_change == START + 30
    two.take(listing(), START + 20)
    assert two.next_change == START + 110


def test_what_was_taken_back_changes_no_more() -> None:
    """A time in the past would keep the watcher going round."""
    faults = chip()
    faults.take(listing(LINK), START)
    faults.take(listing(), START + 30)
    assert faults.health(START + 90).faults == ()
    assert faults.next_change is None


def test_a_rule_that_took_back_what_it_did_counts_anew() -> None:
    """However long its window is."""
    faults = ChipFaults(TABLE)
    for at in (START, START + 10):
        come_and_go(faults, 0xA1, at)
    assert faults.health(START + 109).faults
    come_and_go(faults, 0xA1, START + 120)
    assert faults.health(START + 121).faults == ()


# --- alarms without a code, and chips that are silent --------------------------------------------


def test_an_alarm_without_a_code_is_as_severe_as_the_chip_says() -> None:
    """It has no event that could tell; its code is zero."""
    faults = chip()
    for at, severity in enumerate((Severity.MAJOR, Severity.MAJOR, Severity.CRITICAL)):
        faults.take(listing(severity=severity), START + at)
        told = [str(fault) for fault in faults.health(START + at).faults]
    assert told == ["00000000 alarm without a code (SeparateNPU, unknown code, severity critical)"]


def test_the_time_in_which_a_chip_was_silent_explains_no_alarm() -> None:
    """The list gets its second to explain it once there is one again."""
    faults = chip()
    faults.take(listing(severity=Severity.MAJOR), START)
    faults.take(HealthSample(unmonitored="busy"), START + 0.5)
    assert faults.recheck_at is None
    faults.take(listing(severity=Severity.MAJOR), START + 2)
    assert faults.health(START + 2).state is HealthState.UNKNOWN
    assert faults.recheck_at == START + 3


def test_a_chip_is_back_although_its_codes_cannot_be_read() -> None:
    """It answered: that is all it takes."""
    faults = chip()
    faults.take(HealthSample(gone=True), START)
    faults.take(HealthSample(codes=None), START + 1)
    assert faults.health(START + 1).faults == ()


def test_a_chip_that_does_not_finish_its_start_has_dropped() -> None:
    """It is there all the same, and what is between two looks does not put that off."""
    faults, starting = chip(), HealthSample(unmonitored="the chip is in its BIOS", starting=True)
    faults.take(listing(), START)
    for at in (10, 50, 159):
        faults.take(starting, START + at)
        assert faults.health(START + at).state is HealthState.UNKNOWN
        faults.take(HealthSample(unmonitored="busy"), START + at)
    faults.take(starting, START + 160)
    (fault,) = faults.health(START + 160).faults
    assert (fault.code, fault.since) == (CARD_DROPPED, START + 160)
    assert fault.text == "for 150 s the chip is in its BIOS"
    assert not faults.is_gone
    faults.take(listing(), START + 170)
    assert faults.health(START + 170).state is HealthState.HEALTHY
    faults.take(starting, START + 180)
    assert faults.health(START + 180).state is HealthState.UNKNOWN


def test_a_chip_that_was_gone_starts_before_it_is_back() -> None:
    """Its fault stands, but it is there; after a restart of the driver too."""
    faults, starting = chip(), HealthSample(unmonitored="the chip is in its BIOS", starting=True)
    faults.take(HealthSample(gone=True), START)
    assert faults.is_gone
    again = chip(dict(faults.memory))
    assert again.is_gone
    for one in (faults, again):
        one.take(starting, START + 1)
        assert not one.is_gone
        assert [fault.code for fault in one.health(START + 1).faults] == [CARD_DROPPED]


# --- what is remembered --------------------------------------------------------------------------


def test_nothing_is_remembered_that_decides_nothing() -> None:
    """The alarm is for codes that the table does not know; old occurrences count no more."""
    faults = chip({PLAIN: CodeMemory(occurred=(START,))})  # another version had a rule for it
    faults.take(listing(BUSINESS), START)
    assert faults.memory == {BUSINESS: CodeMemory(since=START, text=f"words {BUSINESS:X}")}
    come_and_go(faults, TWICE, START + 1)
    assert set(faults.memory) == {TWICE}
    faults.take(listing(), START + 1 + DAY)
    assert faults.memory == {}


def test_occurrences_are_remembered_while_one_of_them_counts() -> None:
    """The last of them, here."""
    faults = chip()
    for at in (START, START + DAY - 60):
        come_and_go(faults, LINK, at, seconds=20)
    faults.take(listing(), START + DAY + 60)
    assert len(faults.memory[LINK].occurred) == 2


def test_a_release_takes_back_what_rules_did_and_nothing_else() -> None:
    """A chip that no rule has separated has nothing to be released from."""
    faults = chip()
    faults.take(listing(BUSINESS), START)
    assert not faults.release(START)
    come_and_go(faults, TWICE, START)
    come_and_go(faults, TWICE, START + 60)
    assert faults.release(START + 61)
    assert faults.memory == {}


def test_a_fault_settles_after_the_time_that_is_set() -> None:
    """The chip says when; one that an earlier process knew is as old as it was."""
    faults = ChipFaults(packaged_table(), settle_seconds=30)
    faults.take(listing(BUSINESS), START)
    faults.take(listing(BUSINESS, PLAIN), START + 10)
    assert [fault.is_settled for fault in faults.health(START + 10).faults] == [False, False]
    assert faults.next_change == START + 30
    assert [fault.is_settled for fault in faults.health(START + 30).faults] == [True, False]
    assert faults.next_change == START + 40
    restarted = ChipFaults(packaged_table(), faults.memory, settle_seconds=30)
    assert all(fault.is_settled for fault in restarted.health(START + 40).faults)
    assert restarted.next_change is None
    at_once = chip(dict(faults.memory))
    assert all(fault.is_settled for fault in at_once.health(START).faults)
    assert at_once.next_change is None
