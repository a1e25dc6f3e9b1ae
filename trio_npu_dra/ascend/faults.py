"""Huawei's level of each fault code, and the rules that raise a level with time.

`fault_levels.json` names its source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict

from trio_npu_dra.ascend.dcmi.types import Severity
from trio_npu_dra.ascend.model import FaultLevel

CARD_DROPPED: Final = 0x40F84E00
"""Not reported by the library: stands for a chip that is gone (MindCluster does the same)."""

ALARM_WITHOUT_CODE: Final = 0
"""Stands for an alarm in a chip's health when the list of codes does not explain it."""


class _LevelRule(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    codes: tuple[str, ...]
    level: FaultLevel


class FrequencyRule(_LevelRule):
    """A code that comes *times* within *window_seconds* gets *level*.

    A code that also has a duration rule counts each time that rule begins to apply, as in
    MindCluster: the short breaks of a link are no reason to separate a chip.

    Attributes:
        times: How often.
        window_seconds: Within how long.
        release_seconds: After how long the level is released; None if only a person releases it.
    """

    times: int
    window_seconds: float
    release_seconds: float | None = None

    def __str__(self) -> str:
        return f"{self.times} times in {self.window_seconds / 3600:g} h"


class DurationRule(_LevelRule):
    """A code that lasts gets *level*.

    Attributes:
        fault_seconds: How long it must last.
        recover_seconds: How long it must then be gone until the level is released.
    """

    fault_seconds: float
    recover_seconds: float

    def __str__(self) -> str:
        return f"lasted {self.fault_seconds:g} s"


class _TableFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str
    levels: dict[FaultLevel, tuple[str, ...]]
    frequency: tuple[FrequencyRule, ...]
    duration: tuple[DurationRule, ...]


@dataclass(frozen=True, slots=True)
class CodeRules:
    """The rules about one code, each None if there is none."""

    frequency: FrequencyRule | None = None
    duration: DurationRule | None = None


@dataclass(frozen=True, slots=True)
class FaultTable:
    """Levels and rules by code.

    Attributes:
        levels: The level of each known code; of two the worse.
        frequency: Rules about how often a code comes.
        duration: Rules about how long a code lasts.
    """

    levels: Mapping[int, FaultLevel]
    frequency: Mapping[int, FrequencyRule]
    duration: Mapping[int, DurationRule]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a table in the form of `fault_levels.json`.

        Raises:
            ValueError: It is in another form; the message names the field.
        """
        file = _TableFile.model_validate_json(text)
        mildest_first = sorted(file.levels.items(), key=lambda item: item[0].rank)
        return cls(
            levels={int(code, 16): level for level, codes in mildest_first for code in codes},
            frequency={int(code, 16): rule for rule in file.frequency for code in rule.codes},
            duration={int(code, 16): rule for rule in file.duration for code in rule.codes},
        )

    def rules(self, code: int) -> CodeRules:
        """The rules about a code."""
        return CodeRules(frequency=self.frequency.get(code), duration=self.duration.get(code))

    def level(self, code: int, severity: Severity | None) -> tuple[FaultLevel, str]:
        """The level of an active code, and the reason as a short text.

        The severity decides about a code that the table does not know; None counts as the worst.
        """
        known = self.levels.get(code)
        if known is not None:
            return known, "fault table"
        if severity is None:
            return FaultLevel.SEPARATE_NPU, "unknown code, unknown severity"
        level = FaultLevel.NOT_HANDLE if severity <= Severity.MINOR else FaultLevel.SEPARATE_NPU
        return level, f"unknown code, severity {severity.name.lower()}"


@cache
def packaged_table() -> FaultTable:
    """The table that comes with this driver."""
    return FaultTable.parse(Path(__file__).with_name("fault_levels.json").read_text())
