"""A cache of one entry for pure functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def keeps_last_result(function: Callable[P, R]) -> Callable[P, R]:
    """Let a pure function keep its last result, for a call with equal arguments.

    `functools.lru_cache` would hash the arguments, which for large values takes as long as the
    function. Equal arguments are mostly the same objects, so the comparison is cheap.
    """
    last: tuple[object, R] | None = None

    @wraps(function)
    def recalling(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal last
        known, call = last, (args, kwargs)
        if known is None or known[0] != call:
            last = known = (call, function(*args, **kwargs))
        return known[1]

    return recalling
