"""The search agrees with a brute force over random claims and pools."""

from __future__ import annotations

from tests.explain.brute_force import exists
from tests.explain.random_worlds import Maker, World
from tests.explain.world import DRIVER, Wire, class_, node, pod, view_of
from trio_npu_dra.cluster.cel.selector import matches
from trio_npu_dra.cluster.cel.verdict import SelectorFails
from trio_npu_dra.cluster.explain.explain import explain_pod
from trio_npu_dra.cluster.explain.explanation import Explanation, Outcome
from trio_npu_dra.cluster.objects import Device
from trio_npu_dra.cluster.pod_objects import Pod

WORLDS = 120


def explained(world: World) -> Explanation:
    """What is said about a pod that uses all claims of a world."""
    names = [made["metadata"]["name"] for made in world.claims]
    view = view_of(node(world.node), class_(), *world.slices, *world.others, *world.claims)
    return explain_pod(Pod.model_validate(pod("train", *names)), view)


def admits(expression: str, one: Wire) -> bool:
    """The selectors are the same for both; a device for which one fails is never handed out."""
    try:
        return matches(expression, DRIVER, Device.model_validate(one))
    except SelectorFails:
        return False


def test_free_and_waiting_are_what_a_brute_force_finds() -> None:
    """Worlds whose selectors fail are for the test against the real scheduler."""
    outcomes = dict.fromkeys(Outcome, 0)
    for seed in range(WORLDS):
        world = Maker(seed).world()
        found = explained(world)
        outcomes[found.outcome] += 1
        if found.outcome is not Outcome.FAILS:
            is_free = exists(world, admits)
            assert found.outcome is (Outcome.FREE if is_free else Outcome.WAITS), f"seed {seed}"

    assert outcomes[Outcome.FREE] > WORLDS / 5
    assert outcomes[Outcome.WAITS] > WORLDS / 5
    assert outcomes[Outcome.UNDECIDED] == 0
