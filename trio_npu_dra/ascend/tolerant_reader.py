"""Read facts that may be missing, without losing those that are known.

"Not supported", or an answer that means the same, says that there is no such fact. Of a fact that
is known, anything else must be said twice in a row. Any other error says that it was not answered
this time: its known value stays, and the caller asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.kit.base.errors import DcmiError, NotSupported

_ANSWERS: Final = 3  # at most, to find two that agree: the fact may change between them

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TolerantReader:
    """Reads facts, one call each, and collects those that were not answered."""

    def __init__(self) -> None:
        self._failures: dict[str, DcmiError] = {}

    def read(
        self, fact: str, known: T | None, call: Callable[[*Ts], T | None], *arguments: *Ts
    ) -> T | None:
        """What `call(*arguments)` returns.

        Args:
            fact: Its name, for people.
            known: Its value so far, which stays if there is no answer.
            call: A call into the library.
            arguments: Its arguments.

        Returns:
            None if there is no such fact.
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
        """What was not answered, with the first error; empty if everything was."""
        if not self._failures:
            return ""
        return f"no {', '.join(self._failures)}: {next(iter(self._failures.values()))}"
