"""The lines that each test runs, and its duration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import coverage

BUDGET: Final = 30.0
"""Seconds of tests, as measured, to spend on one mutant; the slowest tests are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of a room's tests.

    Attributes:
        seconds: How long each test takes, by its id.
        by_line: The ids of the tests that run a line, by file and line.
    """

    seconds: Mapping[str, float]
    by_line: Mapping[Path, Mapping[int, frozenset[str]]]

    def choose_any(self) -> list[str]:
        """The quickest of all tests, within the budget."""
        return self._worth(self.seconds)

    def choose(self, file: Path, lines: Iterable[int]) -> list[str]:
        """The tests that run one of the lines, quickest first, within the budget."""
        known = self.by_line.get(file, {})
        tests: set[str] = set()
        tests.update(*(known.get(line, ()) for line in lines))
        return self._worth(tests)

    def _worth(self, tests: Iterable[str]) -> list[str]:
        total, chosen = 0.0, list[str]()
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            total += self.seconds[test]
            if chosen and total > BUDGET:
                break
            chosen.append(test)
        return chosen


def read_coverage(data_file: Path, tests: Iterable[str]) -> dict[Path, dict[int, frozenset[str]]]:
    """Read coverage's data, with ids of tests as contexts.

    Args:
        data_file: Coverage's file.
        tests: The ids; lines that ran outside of any test, at an import, belong to no test.
    """
    ids = frozenset(tests)
    data = coverage.CoverageData(basename=str(data_file))
    data.read()
    return {
        Path(file): {
            line: ids.intersection(contexts)
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
