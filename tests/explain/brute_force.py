"""Whether an allocation exists, by trying every way to hand out devices; independent and slow.

It knows nothing of orders, steps or errors: it lists all choices of subrequests and devices, and
asks of each whether all rules hold. Selectors are given to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product

from dev.explain.random_worlds import World
from dev.explain.world import Wire
from trio_npu_dra.kit.api.quantity import parse_quantity

Admits = Callable[[str, Wire], bool]
Choice = list[tuple[int, str, Wire, Wire]]
"""Number of the claim, names of request and subrequest, the ask, and a device."""


def exists(world: World, admits: Admits) -> bool:
    """Whether all claims of a world can be had together."""
    devices = [one for made in world.slices for one in made["spec"].get("devices", ())]
    names = [one["name"] for one in devices]
    counts = {made["spec"]["pool"]["resourceSliceCount"] for made in world.slices}
    usable = counts == {len(world.slices)} and len(set(names)) == len(names)
    asks: list[list[tuple[int, str, Wire]]] = [
        [(number, title, one) for title, one in _asks(request)]
        for number, made in enumerate(world.claims)
        for request in made["spec"]["devices"]["requests"]
    ]
    for chosen in product(*asks):
        options = [list(_sets(one, devices if usable else [], admits)) for one in chosen]
        for sets in product(*options):
            choice = [
                (number, title, one, picked)
                for (number, title, one), devices_ in zip(chosen, sets, strict=True)
                for picked in devices_
            ]
            if _holds(choice, world):
                return True
    return False


def _asks(request: Wire) -> Iterator[tuple[str, Wire]]:
    if "exactly" in request:
        yield request["name"], request["exactly"]
    for sub in request.get("firstAvailable", ()):
        yield f"{request['name']}/{sub['name']}", sub


def _sets(
    chosen: tuple[int, str, Wire], devices: list[Wire], admits: Admits
) -> Iterator[tuple[Wire, ...]]:
    """The sets of devices that one request could have, were it alone in the world."""
    ask = chosen[2]
    fitting = [
        one
        for one in devices
        if all(admits(selector["cel"]["expression"], one) for selector in ask.get("selectors", ()))
        and _amount(ask, one) is not None
    ]
    if ask.get("allocationMode") == "All":
        if fitting:
            yield tuple(fitting)
        return
    yield from combinations(fitting, ask["count"])


def _amount(ask: Wire, one: Wire) -> Fraction | None:
    """What is taken of the memory; None if the device is too small."""
    memory = one["capacity"]["memory"]
    wanted = ask.get("capacity", {}).get("requests", {}).get("memory")
    policy = memory.get("requestPolicy")
    size = parse_quantity(memory["value"])
    if wanted is None:
        taken = parse_quantity(policy["default"]) if policy else size
    else:
        taken = parse_quantity(wanted)
        if policy:
            step = parse_quantity(policy["validRange"]["step"])
            taken = max(-(-taken // step) * step, parse_quantity(policy["validRange"]["min"]))
    return taken if taken <= size else None


def _holds(choice: Choice, world: World) -> bool:
    results = [
        one for made in world.others for one in made["status"]["allocation"]["devices"]["results"]
    ]
    return (
        all(_tolerated(ask, one) for _, _, ask, one in choice)
        and _fits(choice, results)
        and _counted(choice, results, world)
        and all(
            _agrees(rule, [(title, one) for number, title, _, one in choice if number == at])
            for at, made in enumerate(world.claims)
            for rule in made["spec"]["devices"].get("constraints", ())
        )
    )


def _tolerated(ask: Wire, one: Wire) -> bool:
    harmful = [taint for taint in one.get("taints", ()) if taint["effect"] != "None"]
    return not harmful or bool(ask.get("tolerations"))


def _fits(choice: Choice, results: list[Wire]) -> bool:
    for one in {picked["name"]: picked for _, _, _, picked in choice}.values():
        taken = [_amount(ask, one) for _, _, ask, picked in choice if picked is one]
        before = [result for result in results if result["device"] == one["name"]]
        if not one.get("allowMultipleAllocations"):
            if len(taken) + len(before) > 1:
                return False
            continue
        used = sum(parse_quantity(result["consumedCapacity"]["memory"]) for result in before)
        total = used + sum(amount for amount in taken if amount is not None)
        if total > parse_quantity(one["capacity"]["memory"]["value"]):
            return False
    return True


def _counted(choice: Choice, results: list[Wire], world: World) -> bool:
    """Counters; the scheduler refuses whatever takes from a pool with an overdrawn one."""
    devices = [one for made in world.slices for one in made["spec"].get("devices", ())]
    held = {result["device"] for result in results}
    picked = {one["name"] for _, _, _, one in choice}
    left = {"s0": Fraction(4), "s1": Fraction(4)}
    needs = False
    for one in devices:
        if one["name"] in held | picked:
            for part in one.get("consumesCounters", ()):
                left[part["counterSet"]] -= parse_quantity(part["counters"]["slots"]["value"])
                needs = needs or one["name"] not in held
    return not needs or all(amount >= 0 for amount in left.values())


def _agrees(rule: Wire, given: list[tuple[str, Wire]]) -> bool:
    names = rule.get("requests")
    name = (rule.get("matchAttribute") or rule["distinctAttribute"]).rpartition("/")[2]
    mine = [
        one["attributes"].get(name)
        for title, one in given
        if not names or title in names or title.partition("/")[0] in names
    ]
    if None in mine:
        return False
    values = [tuple(value.items()) for value in mine]
    return len(set(values)) == (1 if "matchAttribute" in rule else len(values)) or not values
