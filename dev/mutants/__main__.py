"""Mutation testing of one room, not part of CI: `python -m dev.mutants ROOM [MODULE ...]`.

docs/mutants.md says why, and what it found.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest

from dev.mutants.forks import Ended
from dev.mutants.operators import mutants
from dev.mutants.runner import Room, Subject
from dev.mutants.store import Outcome, Store, Verdict

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = REPOSITORY / "trio_npu_dra"
RESULTS: Final = REPOSITORY / "build" / "mutants"
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "ascend": ("tests/ascend",),
    "kit/pool": ("tests/pool",),
    "kit/kubelet": ("tests/kubelet",),
    "agent/devices": ("tests/devices", "tests/pool"),
    "agent/claims": ("tests/claims",),
    "agent/handout": ("tests/claims", "tests/device_plugin"),
    "agent/holds": ("tests/holds", "tests/claims"),
    "agent/config": ("tests/config",),
    "agent/device_plugin": ("tests/device_plugin",),
    "agent/report": ("tests/report",),
    "tools/cluster": ("tests/explain",),
    "tools/ranktable": ("tests/ranktable",),
}
SEED: Final = 1


class Run:
    """One run over a room, as a plugin of pytest.

    Args:
        room: Its name.
        only: The names of modules; without one, all.
        sample: How many mutants to test, chosen by chance; without it, all.
        again: Test those again that were not killed.
    """

    def __init__(
        self, room: str, only: Collection[str], *, sample: int | None, again: bool
    ) -> None:
        self.room = room
        self.sample = sample
        self.again = again
        self.verdicts: dict[Path, list[Verdict]] = {}
        self._modules = sorted(
            path
            for path in (PACKAGE / room).rglob("*.py")
            if path.name != "__init__.py" and (not only or path.stem in only)
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called by pytest when all tests are collected, to run them."""
        chosen = self._chosen()
        for module in self._modules:  # also those that no test imports
            import_module(".".join(module.relative_to(REPOSITORY).with_suffix("").parts))
        room = Room(session, PACKAGE / self.room)
        for module in self._modules:
            self.verdicts[module] = list(self._judge(room, module, chosen[module]))
        return True

    def _chosen(self) -> dict[Path, set[str]]:
        """The keys of all mutants to test."""
        keys = [
            (module, mutant.key)
            for module in self._modules
            for mutant in mutants(module.read_text())
        ]
        if self.sample is not None and self.sample < len(keys):
            keys = random.Random(SEED).sample(keys, self.sample)  # noqa: S311 - no secret
        chosen: dict[Path, set[str]] = {module: set() for module in self._modules}
        for module, key in keys:
            chosen[module].add(key)
        return chosen

    def _judge(self, room: Room, module: Path, keys: set[str]) -> Iterator[Verdict]:
        name, text = module.relative_to(PACKAGE), module.read_text()
        store = Store(RESULTS, name, text)
        known = {key: verdict for key, verdict in store.read().items() if key in keys}
        if self.again:
            known = {
                key: verdict for key, verdict in known.items() if verdict.outcome is Outcome.KILLED
            }
        yield from known.values()
        asked = (
            room.subject(module, mutant)
            for mutant in mutants(text)
            if mutant.key in keys and mutant.key not in known
        )
        for ended in room.ask(asked):
            verdict = _verdict(ended)
            store.add(verdict)
            if verdict.outcome is not Outcome.KILLED:
                print(f"{name}:{verdict.line} {verdict.outcome}: {verdict.key}", flush=True)
            yield verdict


def _verdict(ended: Ended[Subject]) -> Verdict:
    outcome = Outcome.SURVIVED if ended.is_well else Outcome.KILLED
    return Verdict(
        key=ended.subject.key,
        line=ended.subject.line,
        outcome=Outcome.TIMED_OUT if ended.timed_out else outcome,
        test="" if ended.is_well else (ended.said or [""])[-1],
        tests=len(ended.subject.tests),
        seconds=round(ended.seconds, 2),
    )


def table(verdicts: Mapping[Path, list[Verdict]]) -> str:
    """The results, one line for each module."""
    rows = [
        "| module | mutants | killed | survived | timed out | seconds |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    everything: list[Verdict] = []
    for module, of in verdicts.items():
        rows.append(_row(f"`{module.relative_to(PACKAGE)}`", of))
        everything += of
    return "\n".join([*rows, _row("all", everything)])


def _row(name: str, verdicts: list[Verdict]) -> str:
    counts = Counter(verdict.outcome for verdict in verdicts)
    numbers = [len(verdicts), *(counts[outcome] for outcome in Outcome)]
    seconds = sum(verdict.seconds for verdict in verdicts)
    return f"| {name} | " + " | ".join(map(str, numbers)) + f" | {seconds:.0f} |"


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m dev.mutants", description=__doc__)
    parser.add_argument("room", choices=TESTS)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as share_flag")
    parser.add_argument("--sample", type=int, help="a quick look: so many mutants, by chance")
    parser.add_argument("--again", action="store_true", help="ask about survivors once more")
    arguments = parser.parse_args()
    os.chdir(REPOSITORY)
    run = Run(arguments.room, arguments.modules, sample=arguments.sample, again=arguments.again)
    since = time.monotonic()
    status = pytest.main(
        [
            *("--quiet", "--capture=no", "--import-mode=importlib", "-p", "no:cacheprovider"),
            *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # hypothesis is there already
            "--override-ini=addopts=",
            *TESTS[arguments.room],
        ],
        plugins=[run],
    )
    print(table(run.verdicts), f"\nin {time.monotonic() - since:.0f} s")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
