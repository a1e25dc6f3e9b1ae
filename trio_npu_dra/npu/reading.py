"""What one look at a chip's health brings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trio_npu_dra.npu.dcmi.types import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of a chip's health.

    Attributes:
        codes: The active codes with the library's words; None if they cannot be read.
        severity: The worst alarm in its health.
        gone: The chip does not exist any more.
        unmonitored: Why it could not be read; empty if it could.
        starting: Whether that is because the chip is not ready, as while it starts.
        pending: Whether that is because the answer takes long: it may come.
    """

    codes: Mapping[int, str] | None = field(default_factory=dict)
    severity: Severity = Severity.WARNING
    gone: bool = False
    unmonitored: str = ""
    starting: bool = False
    pending: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all of it could be read."""
        return not self.gone and not self.unmonitored and self.codes is not None
