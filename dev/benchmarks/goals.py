"""Our goals, and what is known of Huawei's driver.

The goals are for the image's Python: what we accept for code that one person can own. They are
ratios, because milliseconds depend on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GET_INFO: Final = "start until GetInfo is answered"
FIRST_SLICE: Final = "start until the first slice is accepted"
RSS: Final = "RSS in MiB, 8 claims held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The largest value that a figure should have.

    Attributes:
        example: As a multiple of dra-example-driver's.
        huawei: As a multiple of that of Huawei's driver, which is not measured.
        value: In the figure's unit.
    """

    example: float | None = None
    huawei: float | None = None
    value: float | None = None

    def __str__(self) -> str:
        """What can be measured of it: a ratio, or a value with its unit."""
        if self.value is not None:
            return f"<= {self.value:g} MiB"
        return f"<= {self.example:g}" if self.example is not None else ""

    def verdict(self, ratio: float, value: float) -> str:
        """Whether *ratio* to dra-example-driver and *value* are as wanted."""
        if self.value is not None:
            return "met" if value <= self.value else "missed"
        if self.example is not None:
            return "met" if ratio <= self.example else "missed"
        return ""


GOALS: Final[Mapping[str, Goal]] = {
    "prepare": Goal(example=1.2),
    "prepare again": Goal(example=1.45),
    "burst of 8 prepare calls": Goal(example=1.05),
    "8 claims in one prepare call": Goal(example=0.6),
    "CPU of prepare + unprepare": Goal(example=1.4),
    FIRST_SLICE: Goal(example=0.45),
    RSS: Goal(value=56),
}

EXAMPLE_BY_HUAWEI: Final[Mapping[str, float]] = {
    "prepare": 1.06 / 1.56,
    "prepare again": 1.37 / 1.81,
    "unprepare": 0.98 / 1.44,
    "burst of 8 prepare calls": 0.83 / 1.54,
    "8 claims in one prepare call": 0.55 / 0.81,
    "CPU of prepare + unprepare": 0.93 / 1.77,
    FIRST_SLICE: 1047 / 1115,
    RSS: 44.7 / 54.2,
}
"""dra-example-driver's figures as multiples of those of Huawei's driver (ascend-dra).

Both ran beside this driver in the same rounds, once, on 2026-11-22, on another machine of two cores
with kube-apiserver 1.36.3, unthrottled. A quotient is that of this driver's ratios to both, or for
the last two of their medians. Rounds of the day before gave 0.70, 0.65, 0.75, 0.57, 0.58 and 0.54
for the first six.
"""

FAULT_GOAL_MS: Final = 60
"""Goal for the p99 from a fault event until the API server has accepted the taint."""
