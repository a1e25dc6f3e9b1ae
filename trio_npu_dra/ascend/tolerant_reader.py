"""Read facts that may be missing, without losing those that are known.

docs/internals/hardware.md, "Facts", has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported

_ANSWERS: Final = 3  # at most, to find two that agree: the fact may change between them

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TolerantReader:
    """Reads facts, one call each, and collects those without an answer."""

    def __init__(self) -> None:
        self._failures: dict[str, DcmiError] = {}

    def read(
        self, fact: str, known: T | None, call: Callable[[*Ts], T | None], *arguments: *Ts
    ) -> T | None:
        """What `call(*arguments)` returns; None if there is no such fact.

        *fact* is its name, for people. Its *known* value stays if there is no answer.
        """
        before = known
        for _ in range(_ANSWERS):
            try:
                value = call(*arguments)
            except NotSupported:
                value = None
            except DcmiError as error:
                self._failures.setdefault(fact, error)
                return known
            if known is None or value == before:
                return value
            before = value
        return known

    @property
    def problem(self) -> str:
        """The facts without an answer, with the first error; empty if there are none."""
        if not self._failures:
            return ""
        return f"no {', '.join(self._failures)}: {next(iter(self._failures.values()))}"
