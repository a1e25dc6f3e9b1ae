"""What is reported of each call into libdcmi.so."""

from __future__ import annotations

import threading
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


OnCall: TypeAlias = Callable[[DcmiCall], object]
"""Called after each call that returned, on the thread that made it."""


def ignore_call(_: DcmiCall) -> None:
    """Do nothing: for those who do not measure calls."""


_followers = threading.local()


def follow(follower: Callable[[str], object]) -> None:
    """Have *follower* called with the C function of each call that this thread begins."""
    _followers.follower = follower


def begin(function: str) -> None:
    """Say that this thread is about to call a C function."""
    follower = getattr(_followers, "follower", None)
    if follower is not None:
        follower(function)
