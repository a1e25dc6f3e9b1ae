"""Read facts that may be missing, without losing those that are known.

Only "not supported" says that there is no such fact, and of a known one only if it is said twice.
Any other error says that it was not answered this time: its known value stays, and the caller asks
again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from trio_npu_dra.errors import DcmiError, NotSupported

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class FactReader:
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
        for _ in range(2 if known else 1):
            try:
                return call(*arguments)
            except NotSupported:
                continue
            except DcmiError as error:
                self._failures.setdefault(fact, error)
                return known
        return None

    @property
    def problem(self) -> str:
        """What was not answered, with the first error; empty if everything was."""
        if not self._failures:
            return ""
        return f"no {', '.join(self._failures)}: {next(iter(self._failures.values()))}"
