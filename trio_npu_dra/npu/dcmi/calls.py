"""What is told of each call into libdcmi.so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class DcmiCall:
    """A call that returned.

    Attributes:
        function: The C function.
        seconds: How long it took.
        code: What it returned.
    """

    function: str
    seconds: float
    code: int


Told: TypeAlias = Callable[[DcmiCall], object]
"""Called after each call that returned, on the thread that made it."""


def nobody(_: DcmiCall) -> None:
    """Be told and not care."""
