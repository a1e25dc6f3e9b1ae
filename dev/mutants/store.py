"""The results of mutants, one file for each module, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """The result of the tests for a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome for one mutant.

    Attributes:
        key: Names the mutant within its module.
        line: Where the fault is.
        outcome: The result of the tests.
        test: The test that failed or did not end; empty if there is none.
        tests: How many tests run the line.
        seconds: How long it took.
    """

    key: str
    line: int
    outcome: Outcome
    test: str
    tests: int
    seconds: float


class Store:
    """The verdicts on one module; those of another version of it do not count.

    Args:
        folder: Where the files are; made when missing.
        module: The module's file, below the package.
        text: Its source.
    """

    def __init__(self, folder: Path, module: Path, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        self._path = folder / f"{'.'.join(module.with_suffix('').parts)}-{digest}.jsonl"

    def read(self) -> Mapping[str, Verdict]:
        """All verdicts, by key; the last one counts."""
        if not self._path.exists():
            return {}
        lines = [json.loads(line) for line in self._path.read_text().splitlines()]
        found = (Verdict(**line | {"outcome": Outcome(line["outcome"])}) for line in lines)
        return {verdict.key: verdict for verdict in found}

    def add(self, verdict: Verdict) -> None:
        """Write one verdict."""
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")
