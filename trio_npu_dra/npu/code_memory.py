"""What is remembered of one fault code of one chip; `faults.json` keeps it over a restart."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from trio_npu_dra.npu.dcmi.types import Severity

_YEARS_END: Final = 253_402_300_799.0  # 9999-12-31T23:59:59Z

Seconds = Annotated[float, Field(ge=0, le=_YEARS_END, allow_inf_nan=False)]
"""A time in seconds since 1970 that can be written as a date."""


class CodeMemory(BaseModel):
    """What is remembered of one code, also over a restart; times in seconds since 1970.

    Attributes:
        since: When it began; None if it is not active.
        text: The library's words for it.
        severity: That of its last event.
        alarm: The worst in the chip's health when the code was last listed; for codes that the
            table does not know.
        occurred: When it came lately, or had lasted if a duration rule says how long it must; for
            codes with a frequency rule.
        separated: When a frequency rule applied; None if none did or it was released.
        lasting: Whether a duration rule applies, not released yet.
        ended: When it ended, while *lasting*.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    since: Seconds | None = None
    text: str = ""
    severity: Severity | None = None
    alarm: Severity | None = None
    occurred: tuple[Seconds, ...] = ()
    separated: Seconds | None = None
    lasting: bool = False
    ended: Seconds | None = None
