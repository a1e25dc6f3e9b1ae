"""Every attack at its full size, each on a daemon of its own: `python -m dev.abuse [WORD ...]`.

docs/security.md has its output. It takes minutes, and nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import trio

from dev.abuse.attacks import ATTACKS, Attack
from dev.abuse.measure import Outcome, Served, measure
from dev.abuse.node import HarmDone, open_node
from dev.rig.compiled import compiled_simulator
from dev.rig.parts import served_rig

DESCRIPTORS: Final = 1024
"""How many the daemon may have open."""
ROUNDS: Final = 20
PATIENCE: Final = 30.0
CALL_SECONDS: Final = 20.0

HEAD: Final = (
    "| | attack | claims | probes | descriptors | MiB | log lines | else |\n"
    "|---|---|---|---|---|---|--:|---|"
)


async def outcome_of(attack: Attack, size: int, folder: Path, simulator: Path) -> Outcome:
    """Attack a fresh daemon.

    Raises:
        HarmDone: It does not start.
    """
    async with (
        served_rig(folder, simulator, http_port=0, seconds=600) as rig,
        attack.before(rig, size),
        open_node(rig, descriptors=DESCRIPTORS, call_seconds=CALL_SECONDS) as node,
    ):
        return await measure(
            node,
            attack.begin(node, size),
            rounds=ROUNDS,
            seconds=attack.seconds,
            patience=PATIENCE,
        )


def row(attack: Attack, size: int, outcome: Outcome | str) -> str:
    """One line of the table; a text instead of figures says why there are none."""
    name = attack.name.format(f"{size:,}")
    if isinstance(outcome, str):
        return f"| {attack.number} | {name} | | | | | | {outcome} |"
    before, peak, after = outcome.before, outcome.peak, outcome.after
    cells = (
        attack.number,
        name,
        _served(outcome.claims),
        _served(outcome.probes),
        f"{before.descriptors} → {peak.descriptors} → {after.descriptors}",
        f"{before.memory:.0f} → {peak.memory:.0f} → {after.memory:.0f}",
        f"{outcome.lines:,}",
        "; ".join(_else(outcome)),
    )
    return "| " + " | ".join(cells) + " |"


def run(attack: Attack, size: int, simulator: Path) -> Outcome | str:
    """Attack a fresh daemon in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="npu-") as folder:
        try:
            return trio.run(outcome_of, attack, size, Path(folder), simulator)
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            if not isinstance(error, HarmDone):
                raise
            return str(error)


def _served(served: Served) -> str:
    failed = f"{len(served.failures)} of {served.count} failed, " if served.failures else ""
    return f"{failed}{served.slowest:.2f} s at most"


def _else(outcome: Outcome) -> Iterator[str]:
    if outcome.harm:
        yield outcome.harm
    if outcome.last:
        yield f"no claims afterwards: {outcome.last}"
    failures = Counter([*outcome.claims.failures, *outcome.probes.failures])
    yield from (f"{count} x {failure[:80]}" for failure, count in failures.items())


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m dev.abuse", description=__doc__)
    parser.add_argument("words", nargs="*", help="only attacks whose line has one of these words")
    words: list[str] = parser.parse_args().words
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    simulator = compiled_simulator()
    print(HEAD, flush=True)
    for attack in ATTACKS:
        if words and not any(word in f"{attack.number} {attack.name}" for word in words):
            continue
        for size in attack.full:
            print(row(attack, size, run(attack, size, simulator)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
