"""One chip's faults over time, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trio_npu_dra.ascend.chip_faults import UNREAD_SECONDS, ChipFaults
from trio_npu_dra.ascend.code_memory import CodeMemory
from trio_npu_dra.ascend.dcmi.types import Assertion, FaultEvent, Severity
from trio_npu_dra.ascend.faults import CARD_DROPPED, packaged_table
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import FaultLevel
from trio_npu_dra.kit.base.health import HealthState

DAY = 24 * 3600.0
START = 1_000_000.0

PLAIN = 0x80CD8003  # NotHandle, no rule
BUSINESS = 0x81B38002  # RestartBusiness, no rule
TWICE = 0x80E01801  # RestartBusiness; twice a day: separated by hand
LINK = 0x81078603  # RoCE link down: NotHandle; lasting 20 s: PreSeparate; 5 times a day: by hand
UNKNOWN = 0x12345678


def event(
    code: int,
    assertion: Assertion = Assertion.OCCURRENCE,
    *,
    at: float = START,
    severity: Severity | None = None,
) -> FaultEvent:
    """An event about the chip."""
    return FaultEvent(logic_id=0, code=code, severity=severity, assertion=assertion, raised_at=at)


def listing(*codes: int, severity: Severity | None = None) -> HealthSample:
    """A look at a chip that lists these codes; its alarm is that of any of them."""
    if severity is None:
        severity = Severity.MAJOR if codes else Severity.WARNING
    return HealthSample(codes={code: f"words {code:X}" for code in codes}, severity=severity)


def chip(memory: dict[int, CodeMemory] | None = None) -> ChipFaults:
    """A chip that was never asked."""
    return ChipFaults(packaged_table(), memory)


def test_a_chip_that_was_never_asked_is_unknown() -> None:
    """Neither healthy nor unhealthy."""
    assert chip().health(START).state is HealthState.UNKNOWN


@pytest.mark.parametrize(
    ("severity", "level"),
    [(Severity.MINOR, FaultLevel.NOT_HANDLE), (Severity.CRITICAL, FaultLevel.SEPARATE_NPU)],
)
def test_an_unknown_code_is_judged_by_the_severity_of_its_event(
    severity: Severity, level: FaultLevel
) -> None:
    """Without one, by the worst alarm of the chip; an event without a severity keeps the known."""
    with_event, without = chip(), chip()
    with_event.note(event(UNKNOWN, severity=severity), START)
    with_event.note(event(UNKNOWN), START)
    with_event.take_confirmed(listing(UNKNOWN, severity=Severity.MAJOR), START)
    assert with_event.health(START).level is level
    without.take_confirmed(listing(UNKNOWN, severity=severity), START)
    assert without.health(START).level is level


def test_a_chip_that_cannot_be_asked_keeps_its_faults() -> None:
    """A fault stands until it is seen to be gone; without any the verdict is Unknown."""
    well, unhealthy = chip(), chip()
    well.take_confirmed(HealthSample(unmonitored="busy"), START)
    assert well.health(START).state is HealthState.UNKNOWN
    unhealthy.take_confirmed(listing(BUSINESS), START)
    unhealthy.take_confirmed(HealthSample(unmonitored="busy"), START)
    health = unhealthy.health(START)
    assert (health.state, health.unmonitored) == (HealthState.UNHEALTHY, "busy")
    unhealthy.take_confirmed(HealthSample(codes=None), START)
    assert unhealthy.health(START).level is FaultLevel.RESTART_BUSINESS


@pytest.mark.parametrize(
    "silence",
    [
        HealthSample(unmonitored="busy"),
        HealthSample(gone=True),
        HealthSample(codes=None, severity=Severity.MAJOR),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_an_unknown_code_keeps_its_level_while_the_chip_is_silent(
    silence: HealthSample, *, restart: bool
) -> None:
    """Missing answers do not make a chip healthier, nor does a restart."""
    faults = chip()
    faults.take_confirmed(listing(UNKNOWN, severity=Severity.MAJOR), START)
    before = faults.health(START).level
    if restart:
        faults = chip(dict(faults.memory))
    faults.take_confirmed(silence, START + 1)
    assert before is FaultLevel.SEPARATE_NPU
    assert faults.health(START + 1).level is before


def test_codes_that_cannot_be_read_for_once_come_no_second_time() -> None:
    """Known codes explain the alarm, and nothing is counted twice."""
    faults = chip()
    faults.take_confirmed(listing(TWICE), START)
    faults.take_confirmed(HealthSample(codes=None, severity=Severity.MAJOR), START + 5)
    assert [fault.code for fault in faults.health(START + 5).faults] == [TWICE]
    faults.take_confirmed(listing(TWICE), START + 10)
    assert faults.health(START + 10).level is FaultLevel.RESTART_BUSINESS


# --- rules ---------------------------------------------------------------------------------------


def come_and_go(faults: ChipFaults, code: int, at: float, seconds: float = 1) -> None:
    """Let a fault be there for a while."""
    faults.note(event(code, at=at), at)
    faults.take_confirmed(listing(code), at)
    faults.note(event(code, Assertion.RECOVERY, at=at), at + seconds)
    faults.take_confirmed(listing(), at + seconds)


def test_an_occurrence_counts_once_though_the_list_is_behind_its_event() -> None:
    """Else one fault separated a chip until a person releases it."""
    faults = chip()
    faults.note(event(TWICE, at=START), START)
    for seconds, reading in enumerate([listing(), listing(), listing(TWICE), listing(TWICE)]):
        faults.take_confirmed(reading, START + seconds)
    faults.note(event(TWICE, Assertion.RECOVERY, at=START), START + 9)
    faults.take_confirmed(listing(), START + 9)
    assert faults.memory[TWICE].occurred == (START,)
    assert not faults.health(START + 9).faults


def test_a_reading_says_nothing_of_events_that_came_after_it_began() -> None:
    """It takes seconds if the library is slow, and may have had its list before."""
    faults = chip()
    faults.take_confirmed(listing(), START)
    faults.note(event(BUSINESS), START + 2)
    faults.take_confirmed(replace(listing(), began=START + 1), START + 2.1)
    assert faults.next_change == START + 2 + UNREAD_SECONDS
    assert not faults.has_waited(START + 2.2)
    assert faults.has_waited(START + 2 + UNREAD_SECONDS)
    faults.take_confirmed(HealthSample(pending=True), START + 2 + UNREAD_SECONDS)
    for began, codes in ((START + 1, [BUSINESS]), (START + 3, [])):
        faults.take_confirmed(replace(listing(), began=began), START + 4)
        assert [fault.code for fault in faults.health(START + 4).faults] == codes


def test_gone_and_back_between_two_looks_counts_twice() -> None:
    """Events show what readings would miss; an occurrence that both show counts once."""
    faults = chip()
    faults.note(event(TWICE, at=START), START)
    faults.take_confirmed(listing(TWICE), START)
    faults.note(event(TWICE, at=START), START)
    assert len(faults.memory[TWICE].occurred) == 1
    faults.note(event(TWICE, Assertion.RECOVERY, at=START), START + 5)
    faults.note(event(TWICE, at=START + 5), START + 5)
    faults.take_confirmed(listing(TWICE), START + 5)
    assert faults.health(START + 5).level is FaultLevel.MANUALLY_SEPARATE_NPU


def test_a_link_that_was_down_for_long_while_nobody_looked_is_raised_all_the_same() -> None:
    """Its events have waited for a busy watcher: the rule speaks by when they came."""
    faults = chip()
    faults.note(event(LINK), START)
    faults.note(event(LINK, Assertion.RECOVERY), START + 30)
    faults.take_confirmed(listing(), START + 30)
    assert faults.health(START + 89).level is FaultLevel.PRE_SEPARATE_NPU
    assert faults.health(START + 90).faults == ()


def test_a_clock_that_was_set_back_delays_no_rule() -> None:
    """What began in the future began now; no fault outlives its end by the size of the jump."""
    lasts, ended = chip(), chip()
    lasts.take_confirmed(listing(LINK), START)
    assert lasts.health(START - DAY).faults[0].since == START - DAY
    assert lasts.health(START - DAY + 20).level is FaultLevel.PRE_SEPARATE_NPU
    ended.take_confirmed(listing(LINK), START)
    ended.take_confirmed(listing(), START + 30)
    ended.take_confirmed(listing(), START - DAY)
    assert ended.health(START - DAY + 59).level is FaultLevel.PRE_SEPARATE_NPU
    assert ended.health(START - DAY + 60).faults == ()


def test_a_rule_of_another_version_does_not_speak() -> None:
    """A driver that was rolled back goes on without; the other version finds its memory again."""
    memory = {
        BUSINESS: CodeMemory(separated=START),
        PLAIN: CodeMemory(since=START, lasting=True),
        UNKNOWN: CodeMemory(lasting=True, ended=START),
    }
    faults = chip(memory)
    faults.take_confirmed(listing(PLAIN), START + 1)
    (fault,) = faults.health(START + 1).faults
    assert (fault.code, fault.level) == (PLAIN, FaultLevel.NOT_HANDLE)
    assert faults.memory[BUSINESS].separated == START
    assert faults.next_change is None


@pytest.mark.parametrize("late", [0.5, 60.0, 299.0])
def test_an_event_that_is_late_tells_when_its_fault_came(late: float) -> None:
    """Not the reading that followed."""
    faults = chip()
    faults.note(event(BUSINESS, at=START - late), START)
    faults.take_confirmed(listing(BUSINESS), START)
    assert faults.health(START).faults[0].since == START - late


def test_words_once_known_stay() -> None:
    """The library does not find them each time."""
    faults = chip()
    faults.take_confirmed(listing(BUSINESS), START)
    faults.take_confirmed(HealthSample(codes={BUSINESS: ""}, severity=Severity.MAJOR), START + 1)
    assert faults.health(START + 1).faults[0].text == f"words {BUSINESS:X}"


def test_a_chip_is_back_although_its_codes_cannot_be_read() -> None:
    """Any answer shows that it is there."""
    faults = chip()
    faults.take_confirmed(HealthSample(gone=True), START)
    faults.take_confirmed(HealthSample(codes=None), START + 1)
    assert faults.health(START + 1).faults == ()


def test_a_chip_that_does_not_finish_its_start_has_dropped() -> None:
    """It is listed all the same; errors between two readings do not delay that."""
    faults, booting = chip(), HealthSample(unmonitored="the chip is in its BIOS", booting=True)
    faults.take_confirmed(listing(), START)
    for at in (10, 50, 159):
        faults.take_confirmed(booting, START + at)
        assert faults.health(START + at).state is HealthState.UNKNOWN
        faults.take_confirmed(HealthSample(unmonitored="busy"), START + at)
    faults.take_confirmed(booting, START + 160)
    (fault,) = faults.health(START + 160).faults
    assert (fault.code, fault.since) == (CARD_DROPPED, START + 160)
    assert fault.text == "for 150 s the chip is in its BIOS"
    assert not faults.is_gone
    faults.take_confirmed(listing(), START + 170)
    assert faults.health(START + 170).state is HealthState.HEALTHY
    faults.take_confirmed(booting, START + 180)
    assert faults.health(START + 180).state is HealthState.UNKNOWN


def test_a_chip_that_was_gone_starts_before_it_is_back() -> None:
    """Its fault stands, but it is there; after a restart of the driver too."""
    faults, booting = chip(), HealthSample(unmonitored="the chip is in its BIOS", booting=True)
    faults.take_confirmed(HealthSample(gone=True), START)
    assert faults.is_gone
    again = chip(dict(faults.memory))
    assert again.is_gone
    for one in (faults, again):
        one.take_confirmed(booting, START + 1)
        assert not one.is_gone
        assert [fault.code for fault in one.health(START + 1).faults] == [CARD_DROPPED]


def test_nothing_is_remembered_that_decides_nothing() -> None:
    """The alarm is for codes that the table does not know; old occurrences count no more."""
    faults = chip({PLAIN: CodeMemory(occurred=(START,))})  # another version had a rule for it
    faults.take_confirmed(listing(BUSINESS), START)
    assert faults.memory == {BUSINESS: CodeMemory(since=START, text=f"words {BUSINESS:X}")}
    come_and_go(faults, TWICE, START + 1)
    assert set(faults.memory) == {TWICE}
    faults.take_confirmed(listing(), START + 1 + DAY)
    assert faults.memory == {}


def test_a_fault_settles_after_the_time_that_is_set() -> None:
    """The chip says when; one that an earlier process knew is as old as it was."""
    faults = ChipFaults(packaged_table(), settle_seconds=30)
    faults.take_confirmed(listing(BUSINESS), START)
    faults.take_confirmed(listing(BUSINESS, PLAIN), START + 10)
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
