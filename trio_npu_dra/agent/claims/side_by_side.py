"""One call for each of several claims, side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import trio

T = TypeVar("T")
R = TypeVar("R")


async def side_by_side(
    function: Callable[[str, T], Awaitable[R]], arguments: Mapping[str, T]
) -> dict[str, R]:
    """Call *function* for all items side by side; the answers by key, in order of *arguments*."""
    answers: dict[str, R] = {}

    async def call(key: str, argument: T) -> None:
        answers[key] = await function(key, argument)

    async with trio.open_nursery() as nursery:
        for key, argument in arguments.items():
            nursery.start_soon(call, key, argument)
    return {key: answers[key] for key in arguments}
