"""One chip's faults over time, on a clock of the test's own."""

from __future__ import annotations

import pytest

from trio_npu_dra.ascend.chip_faults import ChipFaults
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


def test_the_worst_of_several_faults_decides() -> None:
    """A minor event never masks a worse one, in whichever order they come."""
    faults = chip()
    faults.take(listing(BUSINESS), START)
    faults.take(listing(PLAIN, BUSINESS), START + 1)
    health = faults.health(START + 1)
    assert health.level is FaultLevel.RESTART_BUSINESS
    assert health.state is HealthState.UNHEALTHY
    assert [fault.since for fault in health.faults] == [START, START + 1]
    assert health.message.startswith("81B38002 words 81B38002 (RestartBusiness, fault table); 80CD")


def test_a_code_that_is_not_listed_any_more_is_over() -> None:
    """No fault outlives its code, and nothing is remembered of one without rules."""
    faults = chip()
    faults.take(listing(BUSINESS), START)
    faults.take(listing(), START + 1)
    assert faults.health(START + 1).state is HealthState.HEALTHY
    assert faults.memory == {}


@pytest.mark.parametrize(
    ("severity", "level"),
    [(Severity.MINOR, FaultLevel.NOT_HANDLE), (Severity.CRITICAL, FaultLevel.SEPARATE_NPU)],
)
def test_an_unknown_code_is_judged_by_its_own_severity_where_an_event_told_it(
    severity: Severity, level: FaultLevel
) -> None:
    """Else by the worst alarm of the chip."""
    told, untold = chip(), chip()
    told.note(event(UNKNOWN, severity=severity), START)
    told.take(listing(UNKNOWN, severity=Severity.MAJOR), START)
    assert told.health(START).level is level
    untold.take(listing(UNKNOWN, severity=severity), START)
    assert untold.health(START).level is level


def test_an_event_without_a_severity_takes_none_back() -> None:
    """What another event said of the code stands, against the alarm of the chip."""
    faults = chip()
    faults.note(event(UNKNOWN, severity=Severity.MINOR), START)
    faults.note(event(UNKNOWN), START)
    faults.take(listing(UNKNOWN, severity=Severity.MAJOR), START)
    assert faults.health(START).level is FaultLevel.NOT_HANDLE


def test_a_chip_that_cannot_be_asked_keeps_its_faults() -> None:
    """A fault stands until it is seen to be gone; without any the verdict is Unknown."""
    well, unhealthy = chip(), chip()
    well.take(HealthSample(unmonitored="busy"), START)
    assert well.health(START).state is HealthState.UNKNOWN
    unhealthy.take(listing(BUSINESS), START)
    unhealthy.take(HealthSample(unmonitored="busy"), START)
    health = unhealthy.health(START)
    assert (health.state, health.unmonitored) == (HealthState.UNHEALTHY, "busy")
    unhealthy.take(HealthSample(codes=None), START)
    assert unhealthy.health(START).level is FaultLevel.RESTART_BUSINESS


def test_a_chip_that_is_gone_has_dropped_and_heals_when_it_is_back() -> None:
    """The drop is a fault with a code of its own, besides those that were known."""
    faults = chip()
    faults.take(listing(PLAIN), START)
    faults.take(HealthSample(gone=True), START + 1)
    assert [fault.code for fault in faults.health(START + 1).faults] == [CARD_DROPPED, PLAIN]
    assert faults.health(START + 1).level is FaultLevel.RESTART_NPU
    faults.take(listing(), START + 2)
    assert faults.health(START + 2).faults == ()


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
    """A chip that says less is not better for it, nor after a restart."""
    faults = chip()
    faults.take(listing(UNKNOWN, severity=Severity.MAJOR), START)
    before = faults.health(START).level
    if restart:
        faults = chip(dict(faults.memory))
    faults.take(silence, START + 1)
    assert before is FaultLevel.SEPARATE_NPU
    assert faults.health(START + 1).level is before


def test_codes_that_cannot_be_read_for_once_come_no_second_time() -> None:
    """The alarm is explained by what was known, and nothing is counted twice."""
    faults = chip()
    faults.take(listing(TWICE), START)
    faults.take(HealthSample(codes=None, severity=Severity.MAJOR), START + 5)
    assert [fault.code for fault in faults.health(START + 5).faults] == [TWICE]
    faults.take(listing(TWICE), START + 10)
    assert faults.health(START + 10).level is FaultLevel.RESTART_BUSINESS


# --- rules ---------------------------------------------------------------------------------------


def come_and_go(faults: ChipFaults, code: int, at: float, seconds: float = 1) -> None:
    """Let a fault be there for a while."""
    faults.note(event(code, at=at), at)
    faults.take(listing(code), at)
    faults.note(event(code, Assertion.RECOVERY, at=at), at + seconds)
    faults.take(listing(), at + seconds)


def test_a_code_that_comes_twice_a_day_separates_the_chip_until_it_is_released() -> None:
    """By hand means by hand: neither recovery nor time takes it back."""
    faults = chip()
    come_and_go(faults, TWICE, START)
    assert faults.health(START + 1).faults == ()
    come_and_go(faults, TWICE, START + DAY - 10)
    health = faults.health(START + 30 * DAY)
    assert health.level is FaultLevel.MANUALLY_SEPARATE_NPU
    assert health.faults[0].rule == "2 times in 24 h"
    assert health.faults[0].since == START + DAY - 10
    assert faults.release(START + 30 * DAY)
    assert faults.health(START + 30 * DAY).faults == ()
    assert not faults.release(START + 30 * DAY)


def test_a_release_counts_anew() -> None:
    """One occurrence after it is the first, not the third."""
    faults = chip()
    come_and_go(faults, TWICE, START)
    come_and_go(faults, TWICE, START + 60)
    faults.release(START + 100)
    come_and_go(faults, TWICE, START + 200)
    assert faults.health(START + 201).faults == ()


def test_twice_in_more_than_a_day_is_not_twice_a_day() -> None:
    """The window moves."""
    faults = chip()
    for day in range(5):
        come_and_go(faults, TWICE, START + day * (DAY + 10))
    assert faults.health(START + 5 * DAY).faults == ()


def test_gone_and_back_between_two_looks_counts_twice() -> None:
    """Events tell what the looks would miss; one occurrence told by both counts once."""
    faults = chip()
    faults.note(event(TWICE, at=START), START)
    faults.take(listing(TWICE), START)
    faults.note(event(TWICE, at=START), START)
    assert len(faults.memory[TWICE].occurred) == 1
    faults.note(event(TWICE, Assertion.RECOVERY, at=START), START + 5)
    faults.note(event(TWICE, at=START + 5), START + 5)
    faults.take(listing(TWICE), START + 5)
    assert faults.health(START + 5).level is FaultLevel.MANUALLY_SEPARATE_NPU


def test_a_link_that_is_down_for_long_is_raised_and_taken_back_a_minute_after() -> None:
    """20 s make PreSeparate, 60 s without it end that; the times are asked for ahead."""
    faults = chip()
    faults.take(listing(LINK), START)
    assert faults.health(START + 19).level is FaultLevel.NOT_HANDLE
    assert faults.next_change == START + 20
    assert faults.health(START + 20).level is FaultLevel.PRE_SEPARATE_NPU
    faults.take(listing(), START + 30)
    health = faults.health(START + 89)
    assert (health.level, health.faults[0].since) == (FaultLevel.PRE_SEPARATE_NPU, START + 30)
    assert faults.next_change == START + 90
    assert faults.health(START + 90).faults == ()


def test_a_link_that_was_down_for_long_while_nobody_looked_is_raised_all_the_same() -> None:
    """Its events have waited for a busy watcher: the rule speaks by when they came."""
    faults = chip()
    faults.note(event(LINK), START)
    faults.note(event(LINK, Assertion.RECOVERY), START + 30)
    faults.take(listing(), START + 30)
    assert faults.health(START + 89).level is FaultLevel.PRE_SEPARATE_NPU
    assert faults.health(START + 90).faults == ()


def test_short_breaks_of_a_link_separate_no_chip() -> None:
    """A code with a duration rule counts once it has lasted, as in MindCluster."""
    faults = chip()
    for hour in range(12):
        come_and_go(faults, LINK, START + 3600 * hour, seconds=19)
    assert faults.health(START + 12 * 3600).faults == ()
    assert faults.memory == {}


@pytest.mark.parametrize("restart", [False, True])
def test_a_link_that_stays_down_counts_once(*, restart: bool) -> None:
    """However often it is looked at, also if it comes back while the rule still applies."""
    faults = chip()
    faults.take(listing(LINK), START)
    for second in range(20, 3600, 40):
        faults.take(listing(LINK), START + second)
        if restart:
            faults = chip(dict(faults.memory))
        faults.take(listing(), START + second + 20)
    assert faults.memory[LINK].occurred == (START + 20,)


def test_a_link_that_is_down_for_long_five_times_is_released_after_two_days() -> None:
    """Its rule says when."""
    faults = chip()
    for hour in range(5):
        come_and_go(faults, LINK, START + 3600 * hour, seconds=30)
    separated = START + 4 * 3600 + 20
    assert faults.health(separated + 1).level is FaultLevel.MANUALLY_SEPARATE_NPU
    faults.take(listing(), separated + 3600)
    assert faults.next_change == separated + 2 * DAY
    assert faults.health(separated + 2 * DAY).faults == ()


def test_memory_carries_everything_over_a_restart() -> None:
    """Since when, how often, and what was separated."""
    before = chip()
    come_and_go(before, TWICE, START)
    before.take(listing(BUSINESS), START + 10)
    after = chip(dict(before.memory))
    after.take(listing(BUSINESS), START + 20)
    assert after.health(START + 20) == before.health(START + 20)
    come_and_go(after, TWICE, START + 30)
    assert after.health(START + 31).level is FaultLevel.MANUALLY_SEPARATE_NPU


def test_a_clock_that_was_set_back_delays_no_rule() -> None:
    """What began in the future began now; no fault outlives its end by the size of the jump."""
    lasts, ended = chip(), chip()
    lasts.take(listing(LINK), START)
    assert lasts.health(START - DAY).faults[0].since == START - DAY
    assert lasts.health(START - DAY + 20).level is FaultLevel.PRE_SEPARATE_NPU
    ended.take(listing(LINK), START)
    ended.take(listing(), START + 30)
    ended.take(listing(), START - DAY)
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
    faults.take(listing(PLAIN), START + 1)
    (fault,) = faults.health(START + 1).faults
    assert (fault.code, fault.level) == (PLAIN, FaultLevel.NOT_HANDLE)
    assert faults.memory[BUSINESS].separated == START
    assert faults.next_change is None
