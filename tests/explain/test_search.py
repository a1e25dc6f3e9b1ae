"""The search agrees with a brute force over random claims and pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dev.explain.random_worlds import Maker, World
from dev.explain.reasons import CUT, RING, held, npu, partition, shared, takes
from dev.explain.world import (
    DRIVER,
    Wire,
    allocated,
    ask,
    claim,
    class_,
    device,
    node,
    pod,
    slice_,
    view_of,
    with_results,
)
from tests.explain.brute_force import exists
from trio_npu_dra.tools.cluster.cel import SelectorFails
from trio_npu_dra.tools.cluster.cel.selector import matches
from trio_npu_dra.tools.cluster.explain.answer import Explanation, explain_pod
from trio_npu_dra.tools.cluster.objects import AnyDevice, Pod
from trio_npu_dra.tools.cluster.said import Outcome

WORLDS = 120


def explained(world: World) -> Explanation:
    """The explanation of a pod that uses all claims of a world."""
    names = [made["metadata"]["name"] for made in world.claims]
    view = view_of(node(world.node), class_(), *world.slices, *world.others, *world.claims)
    return explain_pod(Pod.model_validate(pod("train", *names)), view)


def admits(expression: str, one: Wire) -> bool:
    """The selectors are the same for both; a device for which one fails is never handed out."""
    try:
        return matches(expression, DRIVER, AnyDevice.model_validate(one))
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


def outcome(*objects: Wire, claims: tuple[Wire, ...]) -> Outcome:
    """Of a pod with these claims on a node with these objects."""
    names = [made["metadata"]["name"] for made in claims]
    view = view_of(node("n1"), class_(), *objects, *claims)
    return explain_pod(Pod.model_validate(pod("train", *names)), view).outcome


def test_a_constraint_binds_the_devices_of_its_claim_alone() -> None:
    """One claim has the NPU of another ring than the two of the next claim."""
    slices = slice_("s1", npu(0, ring=0), npu(1, ring=1), npu(2, ring=1))
    first = claim("first", ask(), constraints=[RING])
    second = claim("second", ask(count=2), constraints=[RING])

    assert outcome(slices, claims=(first, second)) is Outcome.FREE
    assert outcome(slices, claims=(second, first)) is Outcome.FREE


@pytest.mark.parametrize("names", [["pair"], ["pair/two"], []])
def test_a_constraint_binds_the_requests_that_it_names(names: list[str]) -> None:
    """By the name of the request or of a choice; all if it names none."""
    slices = slice_("s1", npu(0, ring=0), npu(1, ring=1))
    pair = {"name": "pair", "firstAvailable": [{"name": "two", **ask(count=2)}]}
    bound = claim("train", pair, constraints=[RING | {"requests": names}])
    others = claim("train", pair, constraints=[RING | {"requests": ["pair/one"]}])

    assert outcome(slices, claims=(bound,)) is Outcome.WAITS
    assert outcome(slices, claims=(others,)) is Outcome.FREE


def test_a_request_that_a_constraint_does_not_name_may_have_any_device() -> None:
    """Also beside one that it names."""
    requests = [{"name": name, "exactly": ask()} for name in ("a", "b")]
    made = claim("train", *requests, constraints=[RING | {"requests": ["a"]}])

    assert outcome(slice_("s1", npu(0), npu(1, ring=1)), claims=(made,)) is Outcome.FREE


def test_all_of_what_is_not_decided_is_not_decided() -> None:
    """The NPU that is held may be one that the selector leaves out: then nothing is in the way."""
    unknown = f'device.attributes["{DRIVER}"].model.split("B").size() == 2'
    everything = {"name": "all", "exactly": ask(unknown, allocationMode="All")}
    slices = slice_("s1", npu(0), npu(1))

    assert outcome(slices, held(1), claims=(claim("train", everything),)) is Outcome.UNDECIDED
    beside = claim("train", everything, {"name": "one", "exactly": ask()})
    assert outcome(slices, held(1), claims=(beside,)) is Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("wanted", "one"),
    [
        (ask(), device("npu-0")),
        (ask(capacity={"requests": {"memCapacity": "16Gi"}}), npu(0)),
    ],
    ids=["without capacities", "half of its memory"],
)
def test_a_device_that_has_no_shares_is_handed_out_once(wanted: Wire, one: Wire) -> None:
    """Whatever would be left of its capacities."""
    requests = [{"name": name, "exactly": wanted} for name in ("a", "b")]

    assert outcome(slice_("s1", one), claims=(claim("train", *requests),)) is Outcome.WAITS


@pytest.mark.parametrize(("amount", "expected"), [("16Gi", Outcome.FREE), ("17Gi", Outcome.WAITS)])
def test_shares_of_one_pod_add_up(amount: str, expected: Outcome) -> None:
    """Of 32Gi."""
    wanted = ask(capacity={"requests": {"memCapacity": amount}})
    requests = [{"name": name, "exactly": wanted} for name in ("a", "b")]
    made = claim("train", *requests)

    assert outcome(slice_("s1", shared("8Gi")), claims=(made,)) is expected


@pytest.mark.parametrize("held_before", [False, True])
def test_only_the_first_share_takes_counters(held_before: bool) -> None:
    """It takes all that there are."""
    one = shared("8Gi") | {"consumesCounters": takes("20")}
    share = {
        "request": "npu",
        "driver": DRIVER,
        "pool": "n1",
        "device": "npu-0",
        "shareID": "00000000-0000-4000-8000-000000000001",
        "consumedCapacity": {"memCapacity": "8Gi"},
    }
    before = [with_results(claim("infer", ask()), [share])] if held_before else []
    requests = [{"name": name, "exactly": ask()} for name in ("a", "b")]

    slices = (CUT, slice_("s1", one, count=2))
    assert outcome(*slices, *before, claims=(claim("train", *requests),)) is Outcome.FREE


@pytest.mark.parametrize(("count", "expected"), [(2, Outcome.FREE), (3, Outcome.WAITS)])
def test_partitions_of_one_pod_add_up(count: int, expected: Outcome) -> None:
    """Two take all counters of their NPU."""
    partitions = slice_("s1", *(partition(at) for at in range(3)), count=2)

    assert outcome(CUT, partitions, claims=(claim("train", ask(count=count)),)) is expected


def test_counters_that_are_overdrawn_block_only_devices_that_take_from_some() -> None:
    """As after an allocation that went past the scheduler."""
    takers = (npu(0, consumesCounters=takes("20")), partition(0), partition(1))
    slices = (CUT, slice_("s1", *takers, npu(1), count=2))
    cut = allocated(claim("cut", ask()), "npu-0-vnpu-0")

    made = claim("train", ask())
    assert outcome(*slices, held(0), cut, claims=(made,)) is Outcome.FREE
    assert outcome(*slices, held(0), cut, held(1, name="b"), claims=(made,)) is Outcome.WAITS


def test_compatibility_groups_are_not_decided() -> None:
    """Of whichever counters they are."""
    free, grouped = takes("10"), [one | {"compatibilityGroups": ["a"]} for one in takes("0")]
    slices = slice_("s1", npu(0, consumesCounters=free + grouped), count=2)

    assert outcome(CUT, slices, claims=(claim("train", ask()),)) is Outcome.UNDECIDED


@pytest.mark.parametrize(
    ("domain", "expected"), [(DRIVER, Outcome.FREE), ("other.example.com", Outcome.WAITS)]
)
def test_an_attribute_without_a_domain_is_the_drivers(domain: str, expected: Outcome) -> None:
    """So no device has that of another domain."""
    rule = {"matchAttribute": f"{domain}/topologyGroup"}
    made = claim("train", ask(), constraints=[rule])

    assert outcome(slice_("s1", npu(0)), claims=(made,)) is expected


def test_all_leaves_out_what_is_too_small() -> None:
    """Or has none of the capacity; the rest are all that there are."""
    wanted = ask(allocationMode="All", capacity={"requests": {"memCapacity": "64Gi"}})
    slices = slice_("s1", npu(0), npu(1, memory="64Gi"), device("npu-2"))

    assert outcome(slices, held(0), claims=(claim("train", wanted),)) is Outcome.FREE


def test_all_is_refused_while_a_pool_lacks_slices() -> None:
    """The scheduler gives up on it, whatever other pools have."""
    slices = (slice_("s1", npu(0)), slice_("s2", npu(1), pool="half", count=2))

    everything = claim("train", ask(allocationMode="All"))
    assert outcome(*slices, claims=(everything,)) is Outcome.FAILS
    assert outcome(*slices, claims=(claim("train", ask()),)) is Outcome.FREE


@pytest.mark.parametrize(("count", "expected"), [(32, Outcome.FREE), (33, Outcome.WAITS)])
def test_an_allocation_has_at_most_32_devices(count: int, expected: Outcome) -> None:
    """As the API has it."""
    slices = slice_("s1", *(npu(at) for at in range(40)))

    assert outcome(slices, claims=(claim("train", ask(count=count)),)) is expected


@pytest.mark.parametrize(("amount", "expected"), [("16Gi", Outcome.FREE), ("17Gi", Outcome.WAITS)])
@pytest.mark.parametrize("step", [{}, {"step": "1Gi"}], ids=["any", "steps"])
def test_the_largest_share_can_be_had(amount: str, expected: Outcome, step: Wire) -> None:
    """A range ends with its maximum, not before it."""
    one = shared("8Gi")
    policy = {"default": "8Gi", "validRange": {"min": "1Gi", "max": "16Gi", **step}}
    one["capacity"]["memCapacity"]["requestPolicy"] = policy
    share = claim("train", ask(capacity={"requests": {"memCapacity": amount}}))

    assert outcome(slice_("s1", one), claims=(share,)) is expected


def _sixteen(make: Callable[[int], Wire] = npu, **more: Any) -> Wire:
    return slice_("s1", *(make(number) for number in range(16)), **more)


def _unique(number: int) -> Wire:
    made = npu(number, ring=number // 4)
    made["attributes"]["serial"] = {"string": f"serial-{number}"}
    return made


def _requests(*asks: Wire) -> tuple[Wire, ...]:
    return tuple({"name": f"r{at}", "exactly": one} for at, one in enumerate(asks))


def _halves(number: int) -> tuple[Wire, ...]:
    """Three partitions of an NPU, of which two fit."""
    half = [{"counterSet": f"npu-{number}", "counters": {"ai-cores": {"value": "10"}}}]
    return tuple(device(f"npu-{number}-vnpu-{at}", consumesCounters=half) for at in range(3))


_SERIAL = {"distinctAttribute": f"{DRIVER}/serial"}
_SETS = slice_(
    "s0",
    count=2,
    sharedCounters=[
        {"name": f"npu-{number}", "counters": {"ai-cores": {"value": "20"}}} for number in range(16)
    ],
)
_PARTITIONS = slice_("s1", *(one for number in range(16) for one in _halves(number)), count=2)
_CHOICES = {"firstAvailable": [{"name": "four", **ask(count=4)}, {"name": "three", **ask(count=3)}]}
_TWENTY = ask(count=8, capacity={"requests": {"memCapacity": "20Gi"}})


@pytest.mark.parametrize(
    ("objects", "claims"),
    [
        ((_sixteen(), held(0, 8)), (claim("train", ask(count=16)),)),
        ((_sixteen(), held(0, 8)), (claim("train", ask(count=8)), claim("more", ask(count=7)))),
        (
            (_sixteen(lambda at: npu(at, ring=at // 4)), held(0, 4, 8, 12)),
            (claim("train", ask(count=4), constraints=[RING]),),
        ),
        (
            (_sixteen(_unique), held(0, 8)),
            (claim("train", *_requests(ask(count=8), ask(count=7)), constraints=[_SERIAL]),),
        ),
        ((_SETS, _PARTITIONS), (claim("train", ask(count=20)), claim("more", ask(count=13)))),
        ((_sixteen(), held(0, 8)), (claim("train", *_requests(*[ask()] * 15)),)),
        (
            (_sixteen(), held(0, 8)),
            (claim("train", *({"name": f"r{at}", **_CHOICES} for at in range(5))),),
        ),
        (
            (_sixteen(lambda at: shared("8Gi") | {"name": f"npu-{at}"}),),
            (claim("train", *_requests(*[_TWENTY] * 3)),),
        ),
    ],
    ids=["count", "claims", "match", "distinct", "counters", "requests", "choices", "shares"],
)
def test_what_a_node_of_sixteen_lacks_is_found(
    objects: tuple[Wire, ...], claims: tuple[Wire, ...]
) -> None:
    """Though there are millions of ways to hand out what it has."""
    assert outcome(*objects, claims=claims) is Outcome.WAITS
