"""A chip whose alarm, events and list of codes do not agree yet."""

from __future__ import annotations

import pytest

from tests.ascend.test_chip_faults import (
    BUSINESS,
    DAY,
    LINK,
    PLAIN,
    START,
    TWICE,
    UNKNOWN,
    chip,
    event,
    listing,
)
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.dcmi.types import Assertion, Severity
from trio_npu_dra.ascend.faults import ALARM_WITHOUT_CODE
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base.health import HealthState

# --- alarms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("codes", [None, {}])
def test_an_alarm_without_a_code_is_a_fault_once_the_list_had_time_to_explain_it(
    codes: dict[int, str] | None,
) -> None:
    """Health and list are read apart: until they agree the chip is Unknown, which evicts no pod."""
    faults = chip()
    faults.take_confirmed(HealthSample(codes=codes, severity=Severity.CRITICAL), START)
    health = faults.health(START)
    assert (health.state, health.faults) == (HealthState.UNKNOWN, ())
    assert faults.recheck_at == START + 1
    faults.take_confirmed(HealthSample(codes=codes, severity=Severity.CRITICAL), START + 1)
    health = faults.health(START + 1)
    assert [fault.code for fault in health.faults] == [ALARM_WITHOUT_CODE]
    assert (health.level, health.unmonitored) == (FaultLevel.SEPARATE_NPU, "")
    assert not faults.recheck_at
    faults.take_confirmed(HealthSample(codes=codes), START + 2)
    assert faults.health(START + 2).faults == ()


@pytest.mark.parametrize(
    ("code", "severity", "alarm", "is_explained"),
    [
        (PLAIN, None, Severity.MAJOR, True),
        (PLAIN, None, Severity.CRITICAL, False),
        (PLAIN, Severity.CRITICAL, Severity.CRITICAL, True),
        (PLAIN, Severity.MINOR, Severity.MAJOR, False),
        (UNKNOWN, Severity.MINOR, Severity.MAJOR, False),
        (UNKNOWN, None, Severity.CRITICAL, True),
        (BUSINESS, Severity.MAJOR, Severity.CRITICAL, True),
    ],
)
def test_a_mild_code_explains_no_alarm_that_is_worse_than_it(
    code: int, severity: Severity | None, alarm: Severity, *, is_explained: bool
) -> None:
    """Else a chip with a critical alarm would be healthy as long as it has any harmless code."""
    faults = chip()
    faults.note(event(code, severity=severity), START)
    faults.take_confirmed(listing(code, severity=alarm), START)
    assert (faults.health(START).unmonitored == "") == is_explained
    faults.take_confirmed(listing(code, severity=alarm), START + 1)
    codes = {fault.code for fault in faults.health(START + 1).faults}
    assert codes == ({code} if is_explained else {code, ALARM_WITHOUT_CODE})
    assert faults.health(START + 1).level.is_unhealthy == (code != PLAIN or not is_explained)


def test_an_alarm_that_is_explained_late_was_never_a_fault() -> None:
    """The list can lag behind the alarm when a fault comes, and the alarm behind it at its end."""
    faults = chip()
    faults.take_confirmed(listing(severity=Severity.MAJOR), START)
    faults.take_confirmed(listing(BUSINESS), START + 0.1)
    assert [fault.code for fault in faults.health(START + 0.1).faults] == [BUSINESS]
    faults.take_confirmed(listing(severity=Severity.MAJOR), START + 5)
    assert faults.health(START + 5).state is HealthState.UNKNOWN
    faults.take_confirmed(listing(severity=Severity.WARNING), START + 5.1)
    assert faults.health(START + 5.1).state is HealthState.HEALTHY
    assert faults.recheck_at is None


# --- events ahead of, and behind, the list -------------------------------------------------------


def rechecks(faults: ChipFaults, reading: HealthSample, start: float) -> list[float]:
    """When a chip is read again that stays as it is, in seconds since *start*."""
    looks: list[float] = []
    at: float | None = start
    while at is not None:
        faults.take_confirmed(reading, at)
        looks.append(at - start)
        at = faults.recheck_at
    return looks


def test_a_recovery_that_does_not_come_true_is_forgotten() -> None:
    """Its code may be listed for long: the chip is read ever more rarely, for a minute."""
    faults = chip()
    faults.take_confirmed(listing(BUSINESS), START)
    faults.note(event(BUSINESS, Assertion.RECOVERY), START)
    assert rechecks(faults, listing(BUSINESS), START) == [0, 1, 2, 4, 8, 16, 32]
    assert faults.health(START + 32).faults[0].since == START


def test_an_event_ahead_of_the_list_is_followed_up_soon() -> None:
    """The fault is none until the list has it, and has then been there since its event."""
    faults = chip()
    faults.note(event(BUSINESS), START)
    assert rechecks(faults, listing(), START)[:4] == [0, 0.125, 0.25, 0.5]
    assert faults.health(START + 32).faults == ()
    faults.take_confirmed(listing(BUSINESS), START + 40)
    assert faults.health(START + 40).faults[0].since == START


def test_an_event_whose_fault_is_over_is_not_followed_up() -> None:
    """Its recovery came before the list was read."""
    faults = chip()
    for assertion in (Assertion.OCCURRENCE, Assertion.RECOVERY):
        faults.note(event(BUSINESS, assertion), START)
    assert rechecks(faults, listing(), START) == [0]


def test_a_link_that_broke_for_a_moment_while_nobody_looked_did_not_last() -> None:
    """Its recovery says when it ended, not the look long after."""
    faults = chip()
    faults.take_confirmed(listing(), START)
    faults.note(event(LINK, at=START + 1), START + 1)
    faults.note(event(LINK, Assertion.RECOVERY, at=START + 1), START + 2)
    faults.take_confirmed(listing(), START + 60)
    assert faults.health(START + 60).faults == ()


@pytest.mark.parametrize(
    "silence", [HealthSample(unmonitored="busy"), HealthSample(gone=True), HealthSample(codes=None)]
)
def test_a_recovery_of_a_silent_chip_asks_for_no_hurry(silence: HealthSample) -> None:
    """Until the chip answers there is nothing to follow up: a time in the past is no plan."""
    faults = chip()
    faults.take_confirmed(listing(BUSINESS), START)
    faults.note(event(BUSINESS, Assertion.RECOVERY), START)
    faults.take_confirmed(silence, START)
    assert faults.recheck_at is None
    faults.take_confirmed(listing(BUSINESS), START + 0.5)
    assert faults.recheck_at == START + 1


@pytest.mark.parametrize("raised_at", [0.0, START - DAY, START - 301, START + DAY])
def test_a_fault_is_not_older_than_its_event(raised_at: float) -> None:
    """An Ascend driver with another clock gets ours: rules and taints count by it."""
    faults = chip()
    faults.note(event(LINK, at=raised_at), START)
    faults.take_confirmed(listing(LINK), START)
    health = faults.health(START + 1)
    assert (health.level, health.faults[0].since) == (FaultLevel.NOT_HANDLE, START)


@pytest.mark.parametrize(
    ("code", "level"),
    [(TWICE, FaultLevel.MANUALLY_SEPARATE_NPU), (BUSINESS, FaultLevel.NORMAL)],
)
def test_one_off_events_count(code: int, level: FaultLevel) -> None:
    """As in MindCluster: none is an active fault, but a rule counts them."""
    faults = chip()
    for at in (START, START + 3600):
        assert faults.health(at).faults == ()
        faults.note(event(code, Assertion.NOTICE, at=at), at)
        faults.take_confirmed(listing(), at)
    assert faults.health(START + 3600).level is level


def test_the_first_of_two_recoveries_decides_when_to_look() -> None:
    """A second after it; none is needed where the list agrees, or the code was not active."""
    faults = chip()
    faults.take_confirmed(listing(PLAIN, BUSINESS), START)
    for code, at in ((PLAIN, START + 10), (BUSINESS, START + 10.5)):
        faults.note(event(code, Assertion.RECOVERY), at)
        faults.take_confirmed(listing(PLAIN, BUSINESS), at)
    assert faults.recheck_at == START + 11
    faults.note(event(TWICE, Assertion.RECOVERY), START + 11)
    faults.take_confirmed(listing(), START + 11)
    assert faults.recheck_at is None


def test_an_alarm_without_a_code_is_as_severe_as_the_chip_says() -> None:
    """It has no event with a severity; its code is zero."""
    faults = chip()
    for at, severity in enumerate((Severity.MAJOR, Severity.MAJOR, Severity.CRITICAL)):
        faults.take_confirmed(listing(severity=severity), START + at)
        texts = [str(fault) for fault in faults.health(START + at).faults]
    assert texts == ["00000000 alarm without a code (SeparateNPU, unknown code, severity critical)"]


def test_the_second_to_explain_an_alarm_begins_again_after_a_silence() -> None:
    """Only a list can explain it."""
    faults = chip()
    faults.take_confirmed(listing(severity=Severity.MAJOR), START)
    faults.take_confirmed(HealthSample(unmonitored="busy"), START + 0.5)
    assert faults.recheck_at is None
    faults.take_confirmed(listing(severity=Severity.MAJOR), START + 2)
    assert faults.health(START + 2).state is HealthState.UNKNOWN
    assert faults.recheck_at == START + 3
