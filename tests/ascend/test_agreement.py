"""Which readings of a chip are confirmed, on a clock of the test's own."""

from __future__ import annotations

import pytest

from tests.ascend.test_chip_faults import BUSINESS, START, TWICE, chip, event, listing
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.dcmi.types import Assertion, Severity
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.kit.base.health import HealthState

MISSING = HealthSample(unmonitored="there is no such chip", missing=True)
BUSY = HealthSample(unmonitored="busy")


def well() -> ChipFaults:
    """A chip that was healthy a minute ago."""
    faults = chip()
    faults.confirm_and_take(listing(), START - 60)
    return faults


@pytest.mark.parametrize(("reading", "code"), [(MISSING, CARD_DROPPED), (listing(TWICE), TWICE)])
def test_one_reading_makes_no_fault(reading: HealthSample, code: int) -> None:
    """The chip is unknown, and is read again a second later; if that agrees it is a fault."""
    for second in (listing(), reading):
        faults = well()
        faults.confirm_and_take(reading, START)
        assert faults.health(START).state is HealthState.UNKNOWN
        assert faults.health(START).is_doubt
        assert (faults.recheck_at, faults.memory) == (START + 1, {})
        faults.confirm_and_take(second, START + 1)
        is_agreed = second is reading
        health = faults.health(START + 1)
        assert health.state is (HealthState.UNHEALTHY if is_agreed else HealthState.HEALTHY)
        assert [fault.code for fault in health.faults] == [code] * is_agreed
        assert faults.is_gone == (code == CARD_DROPPED and is_agreed)
        assert faults.recheck_at is None
        assert sum(len(known.occurred) for known in faults.memory.values()) == (
            code == TWICE and is_agreed
        )


def test_a_reading_and_its_event_make_a_fault() -> None:
    """Whichever comes first, without another reading; a fault that is known needs neither."""
    heard_first, read_first = well(), well()
    heard_first.note(event(BUSINESS), START)
    heard_first.confirm_and_take(listing(BUSINESS), START)
    read_first.confirm_and_take(listing(BUSINESS), START)
    read_first.note(event(BUSINESS), START + 0.5)
    read_first.confirm_and_take(listing(BUSINESS), START + 0.5)
    restarted = chip(dict(read_first.memory))
    restarted.confirm_and_take(listing(BUSINESS), START + 0.6)
    for faults in (heard_first, read_first, restarted):
        assert faults.health(START + 1).state is HealthState.UNHEALTHY
        assert faults.recheck_at is None


@pytest.mark.parametrize("between", [listing(), BUSY, HealthSample(codes=None)])
@pytest.mark.parametrize("reading", [MISSING, listing(BUSINESS, severity=Severity.MINOR)])
def test_readings_agree_only_in_a_row(reading: HealthSample, between: HealthSample) -> None:
    """Two that say so with another one between them do not."""
    faults = well()
    for second in range(0, 40, 4):
        faults.confirm_and_take(reading, START + second)
        faults.confirm_and_take(between, START + second + 2)
        assert faults.health(START + second + 2).faults == ()


def test_an_answer_that_is_pending_is_no_reading() -> None:
    """It neither agrees nor contradicts."""
    faults = well()
    faults.confirm_and_take(MISSING, START)
    faults.confirm_and_take(HealthSample(unmonitored="slow", pending=True), START + 2)
    assert not faults.is_gone
    faults.confirm_and_take(MISSING, START + 4)
    assert faults.is_gone


def test_a_chip_that_is_asked_in_vain_is_unknown_after_twenty_seconds() -> None:
    """Whatever it answers in between but a reading; the next one is good again."""
    faults = well()
    slow = HealthSample(unmonitored="slow", pending=True)
    for second in (0, 5, 19):
        faults.note_due(START + second)
        faults.confirm_and_take(slow, START + second)
        assert faults.health(START + second).state is HealthState.HEALTHY
    assert faults.health(START + 20).state is HealthState.UNKNOWN
    faults.confirm_and_take(listing(), START + 30)
    assert faults.health(START + 60).state is HealthState.HEALTHY


def test_a_chip_that_is_asked_in_vain_stays_unknown_when_the_clock_is_set_back() -> None:
    """Only an answer ends it: else pods would get a chip that hangs."""
    faults = well()
    faults.note_due(START)
    assert faults.health(START + 20).state is HealthState.UNKNOWN
    faults.note_due(START - 100)
    assert faults.health(START - 99).state is HealthState.UNKNOWN


def test_a_chip_that_came_back_is_gone_only_after_two_readings() -> None:
    """As the first time."""
    faults = well()
    for second, reading in enumerate([MISSING, MISSING, listing(), MISSING]):
        faults.confirm_and_take(reading, START + second)
    assert not faults.is_gone


def test_a_chip_that_is_gone_stays_gone() -> None:
    """Another reading that says so makes it neither doubtful nor due for another one."""
    faults = well()
    seen = []
    for second in range(6):
        faults.confirm_and_take(MISSING, START + second)
        seen.append((faults.health(START + second), faults.recheck_at))
    assert seen[0] != seen[1]
    assert seen[1:] == [seen[1]] * 5
    assert faults.recheck_at is None


def test_a_code_that_a_full_list_lacks_is_not_over() -> None:
    """A severe fault of an event stands until the list has room, or an event ends it."""
    crowd = {0x80000000 + number: "" for number in range(128)}
    full = HealthSample(codes=crowd, is_full=True, severity=Severity.MINOR)
    for is_told in (True, False):
        faults = well()
        faults.confirm_and_take(full, START)
        faults.note(event(BUSINESS, severity=Severity.CRITICAL), START + 10)
        for second in (10, 11, 80):
            faults.confirm_and_take(full, START + second)
            assert BUSINESS in {fault.code for fault in faults.health(START + second).faults}
        if is_told:
            faults.note(event(BUSINESS, Assertion.RECOVERY), START + 81)
        faults.confirm_and_take(full if is_told else listing(), START + 82)
        assert BUSINESS not in {fault.code for fault in faults.health(START + 82).faults}
