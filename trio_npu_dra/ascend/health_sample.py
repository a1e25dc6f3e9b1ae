"""What one look at a chip's health brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trio_npu_dra.ascend.dcmi.types import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSample:
    """What was read of a chip's health.

    Attributes:
        codes: The active codes with the library's words; None if they cannot be read.
        is_full: Whether the chip may have more codes than the library could list.
        severity: The worst alarm in its health.
        gone: The chip does not exist any more.
        unmonitored: Why it could not be read; empty if it could.
        missing: Whether that is because the Ascend driver knows no such chip.
        starting: Whether that is because the chip starts.
        pending: Whether that is because the answer takes long: it may come.
    """

    codes: Mapping[int, str] | None = field(default_factory=dict)
    is_full: bool = False
    severity: Severity = Severity.WARNING
    gone: bool = False
    unmonitored: str = ""
    missing: bool = False
    starting: bool = False
    pending: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of it could be read."""
        return not self.gone and not self.unmonitored and self.codes is not None
