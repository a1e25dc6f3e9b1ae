"""What the rules of the fault table make of a code that comes and goes, against a simple model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ascend.test_chip_faults import DAY, LINK, START, TWICE, come_and_go, listing
from trio_npu_dra.ascend.chip_faults import ChipFaults
from trio_npu_dra.ascend.faults import DurationRule, FaultTable, FrequencyRule, packaged_table
from trio_npu_dra.ascend.model import FaultLevel

TABLE: Final = FaultTable.parse(
    """{
    "about": "",
    "levels": {"NotHandleFault": ["A1", "A2"]},
    "frequency": [{"codes": ["A1"], "level": "ManuallySeparateNPU",
        "times": 2, "window_seconds": 1000, "release_seconds": 100}],
    "duration": [{"codes": ["A2"], "level": "PreSeparateNPU",
        "fault_seconds": 20, "recover_seconds": 60}]
    }"""
)
"""A frequency rule whose window is longer than its separation, and a duration rule."""


@dataclass(frozen=True)
class Break:
    """The code comes some time after the last break ended, and stays for a while.

    Attributes:
        after: Seconds without it before.
        seconds: How long it stays.
        then: What happens when it is over.
    """

    after: float
    seconds: float
    then: str


class Rule:
    """The model: in what state a frequency rule is after some counted moments."""

    def __init__(self, rule: FrequencyRule | None) -> None:
        self.rule = rule
        self.counted: list[float] = []
        self.separated: float | None = None

    def advance(self, now: float) -> None:
        """Release what the rule releases by itself."""
        pause = self.rule.release_seconds if self.rule else None
        if pause and self.separated is not None and now >= self.separated + pause:
            self.release()

    def count(self, at: float) -> None:
        """The code came, or had lasted."""
        self.advance(at)
        self.counted.append(at)
        if self.rule and self.separated is None:
            recent = [one for one in self.counted if at - one < self.rule.window_seconds]
            self.separated = at if len(recent) >= self.rule.times else None

    def release(self) -> bool:
        """Forget it all, if the rule has separated the chip."""
        was_separated = self.separated is not None
        if was_separated:
            self.counted, self.separated = [], None
        return was_separated


breaks = st.builds(
    Break,
    after=st.sampled_from([1.0, 59.0, 60.0, 150.0, 2000.0, 0.3 * DAY, 1.1 * DAY, 2.1 * DAY]),
    seconds=st.sampled_from([1.0, 19.0, 20.0, 50.0, 3600.0]),
    then=st.sampled_from(["", "", "", "restart", "release"]),
)


@settings(max_examples=10 * settings().max_examples)
@given(
    st.sampled_from(
        [(packaged_table(), TWICE), (packaged_table(), LINK), (TABLE, 0xA1), (TABLE, 0xA2)]
    ),
    st.lists(breaks, max_size=12),
    st.sampled_from([0.0, 1.0, 59.0, 61.0, 101.0, DAY, 3 * DAY]),
)
def test_rules_apply_as_in_the_model(
    code_of: tuple[FaultTable, int], history: list[Break], later: float
) -> None:
    """Level and age, released by time or by hand, over restarts; the next change is announced."""
    table, code = code_of
    frequency, duration = Rule(table.frequency.get(code)), table.duration.get(code)
    faults, now = ChipFaults(table), START
    faults.take_confirmed(listing(), now)
    lasting_until: float | None = None
    for one in history:
        begun = now + one.after
        now = begun + one.seconds
        come_and_go(faults, code, begun, one.seconds)
        if duration is None:
            frequency.count(begun)
        else:
            is_lasting = lasting_until is not None and begun < lasting_until
            if not is_lasting and one.seconds >= duration.fault_seconds:
                frequency.count(begun + duration.fault_seconds)
                is_lasting = True
            lasting_until = now + duration.recover_seconds if is_lasting else None
        frequency.advance(now)
        if one.then == "release":
            assert faults.release(now) == frequency.release()
        elif one.then == "restart":
            faults = ChipFaults(table, faults.memory)
    ended, now = now, now + later
    frequency.advance(now)

    actual = [(f.level, f.rule, f.since) for f in faults.health(now).faults]

    expected: list[tuple[FaultLevel, str, float]] = []
    if frequency.separated is not None:
        expected = [(FaultLevel.MANUALLY_SEPARATE_NPU, str(frequency.rule), frequency.separated)]
    elif lasting_until is not None and now < lasting_until:
        expected = [(FaultLevel.PRE_SEPARATE_NPU, str(duration), ended)]
    assert actual == expected
    change = faults.next_change
    assert change is None or change > now
    assert [f.level for f in faults.health(change - 0.01 if change else now + 9 * DAY).faults] == [
        level for level, _, _ in expected
    ]


@given(st.sampled_from([LINK, TWICE]), st.lists(st.sampled_from([1.0, 19.0, 21.0]), max_size=5))
def test_a_code_that_is_there_has_the_level_that_its_rules_give_it(
    code: int, looks: list[float]
) -> None:
    """However often it is looked at meanwhile."""
    rules: DurationRule | None = packaged_table().duration.get(code)
    faults, now = ChipFaults(packaged_table()), START
    faults.take_confirmed(listing(code), now)
    for pause in looks:
        now += pause
        faults.take_confirmed(listing(code), now)
    (fault,) = faults.health(now).faults
    is_lasting = rules is not None and now - START >= rules.fault_seconds
    plain, _ = packaged_table().level(code, None)
    assert fault.level is (FaultLevel.PRE_SEPARATE_NPU if is_lasting else plain)
    assert fault.since == START
    assert len(faults.memory[code].occurred) == (1 if is_lasting or rules is None else 0)
    assert faults.next_change == (START + 20 if rules is not None and not is_lasting else None)


def test_the_first_change_of_all_codes_and_rules_is_the_next() -> None:
    """A link that is down again after it separated its NPU; then one code of two."""
    faults, two = ChipFaults(packaged_table()), ChipFaults(TABLE)
    for hour in range(5):
        come_and_go(faults, LINK, START + 3600 * hour, seconds=20)
    faults.take_confirmed(listing(LINK), START + 5 * 3600)
    assert faults.next_change == START + 5 * 3600 + 20
    come_and_go(two, 0xA1, START)
    come_and_go(two, 0xA1, START + 10)
    two.take_confirmed(listing(0xA2), START + 10)
    assert two.next_change == START + 30
    two.take_confirmed(listing(), START + 20)
    assert two.next_change == START + 110
