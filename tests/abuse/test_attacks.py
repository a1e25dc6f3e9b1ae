"""A kubelet is served beside each attack, and nothing of the attack stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from dev.abuse.attacks import API, END, HTTP, PLANTS, SPOILS, Attack, Plant, as_async
from dev.abuse.file_attacks import no_records_folder
from dev.abuse.measure import Outcome, measure
from dev.abuse.node import open_node
from dev.rig.parts import Rig, served_rig

DESCRIPTORS = 256
"""Files that the daemon may have open here: the attacks are small, and so is the limit."""
MEMORY_LIMIT = 256.0
"""MiB, the limit of k8s/base/daemonset.yaml."""
PATIENCE = 20.0
"""Seconds for a call, for a few rounds of calls, and for the figures to be as before."""
ROUNDS = 3


def turns() -> list[list[Plant]]:
    """Sets of plants for the folders: each set fills all places, and every plant is in some set."""
    places: dict[str, list[Plant]] = {}
    for plant in PLANTS:
        places.setdefault(plant.place, []).append(plant)
    count = max(map(len, places.values()))
    return [[plants[turn % len(plants)] for plants in places.values()] for turn in range(count)]


TURNS = turns()


@contextmanager
def put(rig: Rig, plants: Iterable[Plant]) -> Iterator[None]:
    """All these plants are in place."""
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant.put(rig, plant.small))
        yield


@pytest.fixture
async def rig(folder: Path, simulator: Path) -> AsyncIterator[Rig]:
    """A node whose daemon has an HTTP port."""
    async with served_rig(folder, simulator, http_port=0, seconds=180) as rig:
        yield rig


opened = partial(open_node, descriptors=DESCRIPTORS, call_seconds=PATIENCE)
measured = partial(measure, rounds=ROUNDS, patience=PATIENCE)


def flaws(outcome: Outcome) -> list[str]:
    """Effects that an attack should not have."""
    found = [*outcome.claims.failures, outcome.last, outcome.harm]
    for name, served in (("claims", outcome.claims), ("probes", outcome.probes)):
        if served.good < ROUNDS:
            found.append(f"{served.good} {name} in {PATIENCE:g} s: {served.failures}")
    if outcome.peak.memory > MEMORY_LIMIT:
        found.append(f"{outcome.peak.memory:.0f} MiB at most")
    if not outcome.is_back:
        found.append(f"before {outcome.before}, after {outcome.after}")
    return [flaw for flaw in found if flaw]


@pytest.mark.parametrize("attacks", [HTTP, API], ids=["http", "api"])
async def test_claims_are_served_beside_attacks(rig: Rig, attacks: Sequence[Attack]) -> None:
    """One daemon survives all attacks, one after another."""
    async with opened(rig) as node:
        for attack in attacks:
            outcome = await measured(node, attack.begin(node, attack.small))
            assert flaws(outcome) == [], attack.name.format(attack.small)


async def test_claims_are_served_whatever_comes_into_the_folders(rig: Rig) -> None:
    """The daemon serves claims while foreign things appear in every place, again and again."""
    async with opened(rig) as node:
        for plants in TURNS:
            outcome = await measured(node, as_async(put(rig, plants)))
            assert flaws(outcome) == [], [f"{plant.place}: {plant.name}" for plant in plants]
        outcome = await measured(node, as_async(no_records_folder(rig)))
        assert flaws(outcome) == []


@pytest.mark.parametrize("turn", range(len(TURNS)))
async def test_a_daemon_starts_whatever_is_in_the_folders(rig: Rig, turn: int) -> None:
    """The daemon becomes ready, also when files of a held claim or the folders were changed."""
    spoil = [*SPOILS.values()][turn % len(SPOILS)]
    async with rig.registered() as kubelet:
        await kubelet.prepare([rig.claim("held", "npu-1")])
    with spoil(rig), put(rig, TURNS[turn]):
        async with opened(rig) as node:
            assert flaws(await measured(node, nullcontext())) == []


async def test_term_ends_the_daemon_beside_clients_that_never_read(rig: Rig) -> None:
    """It ends in order, within its pod's grace period."""
    async with opened(rig) as node:
        outcome = await measured(node, END.begin(node, END.small))
        assert (outcome.claims.failures, outcome.harm) == ([], "")
        assert node.agent.process.exitcode == 0
