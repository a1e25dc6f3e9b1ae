"""What became of the mutants, in one file a module, so that a run can be broken off and go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Outcome(StrEnum):
    """What the tests made of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcome for one mutant.

    Attributes:
        key: Names the mutant within its module.
        line: Where the fault is.
        outcome: What the tests made of it.
        test: The one that failed or did not end; empty if none did.
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
    """The verdicts on one module; those of another version of it are not read.

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
        """Write one down."""
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")
