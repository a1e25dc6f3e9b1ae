import pytest

from trio_npu_dra.ascend.dcmi.types import Severity
from trio_npu_dra.ascend.faults import CARD_DROPPED, FaultTable, packaged_table
from trio_npu_dra.ascend.model import FaultLevel

TABLE = packaged_table()


def test_the_packaged_table_has_every_level_that_needs_handling() -> None:
    """Some 800 codes, 43 frequency rules and one duration rule."""
    assert len(TABLE.levels) > 700
    assert set(TABLE.levels.values()) == set(FaultLevel) - {
        FaultLevel.NORMAL,
        FaultLevel.MANUALLY_SEPARATE_NPU,
    }
    assert len(TABLE.frequency) == 43
    assert set(TABLE.duration) == {0x81078603}


def test_levels_are_ranked_as_mindcluster_ranks_them() -> None:
    """From "separated by hand" down to normal; sub-health is the last that is still healthy."""
    worst_first = [
        "ManuallySeparateNPU",
        "SeparateNPU",
        "PreSeparateNPU",
        "RestartNPU",
        "FreeRestartNPU",
        "RestartBusiness",
        "RestartRequest",
        "SubHealthFault",
        "NotHandleFault",
        "NormalNPU",
    ]
    ranked = sorted(FaultLevel, key=lambda level: -level.rank)
    assert [level.value for level in ranked] == worst_first
    assert [level.value for level in ranked if not level.is_unhealthy] == worst_first[-3:]


@pytest.mark.parametrize(
    ("code", "severity", "level", "rule"),
    [
        (0x80E01801, Severity.MAJOR, FaultLevel.RESTART_BUSINESS, "fault table"),
        (0x81078603, Severity.MAJOR, FaultLevel.NOT_HANDLE, "fault table"),
        (CARD_DROPPED, Severity.WARNING, FaultLevel.RESTART_NPU, "fault table"),
        (1, Severity.WARNING, FaultLevel.NOT_HANDLE, "unknown code, severity warning"),
        (1, Severity.MINOR, FaultLevel.NOT_HANDLE, "unknown code, severity minor"),
        (1, Severity.MAJOR, FaultLevel.SEPARATE_NPU, "unknown code, severity major"),
        (1, Severity.CRITICAL, FaultLevel.SEPARATE_NPU, "unknown code, severity critical"),
        (1, None, FaultLevel.SEPARATE_NPU, "unknown code, unknown severity"),
    ],
)
def test_a_code_has_the_level_of_the_table_or_of_its_severity(
    code: int, severity: Severity | None, level: FaultLevel, rule: str
) -> None:
    """The table wins; of an unknown code a minor severity is harmless, an unknown one is not."""
    assert TABLE.level(code, severity) == (level, rule)


@pytest.mark.parametrize("other", ["NotHandleFault", "SubHealthFault"])
def test_of_two_levels_the_worse_counts(other: str) -> None:
    """A code in two lists of the table has the worse level, whatever their order."""
    table = FaultTable.parse(
        f'{{"about": "", "levels": {{"SeparateNPU": ["A1"], "{other}": ["A1"]}},'
        ' "frequency": [], "duration": []}'
    )
    assert table.levels == {0xA1: FaultLevel.SEPARATE_NPU}


def test_each_code_of_a_rule_has_the_rule() -> None:
    """The table writes codes in hex."""
    table = FaultTable.parse(
        '{"about": "", "levels": {}, "frequency": [{"codes": ["A1", "1F"], "times": 2,'
        ' "level": "SeparateNPU", "window_seconds": 7200}], "duration": []}'
    )
    assert {code: str(rule) for code, rule in table.frequency.items()} == {
        0xA1: "2 times in 2 h",
        0x1F: "2 times in 2 h",
    }


def test_a_table_of_another_form_is_refused_by_field() -> None:
    """The message names what is wrong."""
    with pytest.raises(ValueError, match=r"frequency\.0\.times"):
        FaultTable.parse(
            '{"about": "", "levels": {}, "duration": [],'
            ' "frequency": [{"codes": [], "level": "SeparateNPU", "window_seconds": 1}]}'
        )
