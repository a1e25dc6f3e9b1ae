"""How many devices each step of the scheduler's search leaves for one request, in sentences too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any

from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.selector import names_in
from trio_npu_dra.tools.cluster.explain.case import Case, Cel, Matcher, Wanted
from trio_npu_dra.tools.cluster.inventory import Allotment, DeviceId, PlacedDevice, PoolId
from trio_npu_dra.tools.cluster.objects import taint_words
from trio_npu_dra.tools.cluster.pools import NodePool, fits, quantity_words, share_of
from trio_npu_dra.tools.cluster.said import Code, Lost, Said, Step, Why, counted, few


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Devices that a step removes, for one reason.

    Attributes:
        why: A text about the devices: `have memCapacity 32Gi`.
        devices: Which.
    """

    why: Said
    devices: tuple[DeviceId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelStep:
    """A step, and what is left after it.

    Attributes:
        words: A text about the devices that are left: `match the class npu.huawei.com`.
        left: How many there are.
        most: How many of them one node can have.
        enough: Whether some node can still have what the request wants.
        undecided: Why some of them are left only because we cannot tell; empty if none are.
        losses: The devices that the step removes, the largest part first.
    """

    words: Said
    left: int
    most: int
    enough: bool
    undecided: str = ""
    losses: tuple[Loss, ...]

    @property
    def counting(self) -> str:
        """The text, with a verb that agrees with the number of devices that are left."""
        verb, _, rest = self.words.partition(" ")
        if self.left > 1:
            return self.words
        return f"{ {'are': 'is', 'have': 'has', 'match': 'matches', 'may': 'may'}[verb] } {rest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Funnel:
    """All steps of a request.

    Attributes:
        wanted: The request.
        steps: In the order in which they are asked, up to one that leaves nothing.
    """

    wanted: Wanted
    steps: tuple[FunnelStep, ...]

    @property
    def short(self) -> int | None:
        """The number of the first step that leaves too few; None if none does."""
        return next((at for at, step in enumerate(self.steps) if not step.enough), None)

    @property
    def undecided(self) -> str:
        """Why it is not known which step leaves too few; empty if it is."""
        steps = self.steps if self.short is None else self.steps[: self.short + 1]
        return next((step.undecided for step in steps if step.undecided), "")


_Test = Callable[[PlacedDevice], Said | None]
"""Why a device does not pass; None if it passes."""


def funnel(wanted: Wanted, case: Case) -> Funnel:
    """Hold a request against all devices."""
    left: dict[DeviceId, PlacedDevice] = {}
    seen_by: dict[DeviceId, list[str]] = {}
    losses: dict[Said, list[DeviceId]] = {}
    for node, pools in case.pools.items():
        for pool in pools:
            if problem := pool.problem:
                losses[problem] = [placed.id for placed in pool.devices]
                continue
            for placed in pool.devices:
                left[placed.id] = placed
                seen_by.setdefault(placed.id, []).append(node)
    need = {} if wanted.count is None else dict.fromkeys(case.pools, wanted.count)
    words = Said("are published", Step.PUBLISHED)
    steps = [_step(words, left, dict(sorted(losses.items())), seen_by, need)]
    for words, is_about_state, test in _tests(wanted, case, seen_by):
        if not left:
            break
        if is_about_state and not need:  # a request for all devices: those that selectors admit
            need = Counter(node for device in left for node in seen_by[device])
        losses, undecided = _tested(left, test)
        step = _step(words, left, losses, seen_by, need)
        if undecided:
            may = words.within(f"may {words.replace('are ', 'be ', 1)}")
            step = replace(step, words=may, undecided=undecided)
        steps.append(step)
    return Funnel(wanted=wanted, steps=tuple(steps))


def _tested(
    left: dict[DeviceId, PlacedDevice], test: _Test
) -> tuple[dict[Said, list[DeviceId]], str]:
    """Take away what does not pass; returns that, and why it is not known of others."""
    losses: dict[Said, list[DeviceId]] = {}
    undecided = ""
    for placed in list(left.values()):
        try:
            why = test(placed)
        except Undecided as error:
            undecided = undecided or str(error)
            continue
        if why:
            losses.setdefault(why, []).append(placed.id)
            del left[placed.id]
    return losses, undecided


def _step(
    words: Said,
    left: Collection[DeviceId],
    losses: Mapping[Said, Sequence[DeviceId]],
    seen_by: Mapping[DeviceId, Sequence[str]],
    need: Mapping[str, int],
) -> FunnelStep:
    """A step; *need* is how many devices a node must have, one if it is absent."""
    counts = Counter(node for device in left for node in seen_by[device])
    found = [Loss(why=why, devices=tuple(devices)) for why, devices in losses.items()]
    return FunnelStep(
        words=words,
        left=len(left),
        most=max(counts.values(), default=0),
        enough=any(count >= need.get(node, 1) for node, count in counts.items()),
        losses=tuple(sorted(found, key=lambda loss: -len(loss.devices))),
    )


def _tests(
    wanted: Wanted, case: Case, seen_by: dict[DeviceId, list[str]]
) -> Iterator[tuple[Said, bool, _Test]]:
    """The steps: text, whether the step is about what may change, and the test."""
    for cel in wanted.class_selectors:
        name = wanted.class_name
        words = Said(f"are of class {name}", Step.CLASS, deviceClass=name)
        yield words, False, _selecting(cel, case.matcher)
    words = Said("are on nodes that take the pod", Step.NODES)
    yield words, False, lambda placed: _on_node(placed, case.barred, seen_by)
    for cel in wanted.selectors:
        expression = " ".join(cel.expression.split())
        words = Said(f"match {expression}", Step.SELECTOR, expression=expression)
        yield words, False, _selecting(cel, case.matcher)
    if wanted.requests:
        amounts = ", ".join(f"{name} {amount}" for name, amount in wanted.requests.items())
        capacities = {name: parse_quantity(amount) for name, amount in wanted.requests.items()}
        words = Said(f"have {amounts} at all", Step.CAPACITY, capacities=capacities)
        yield words, False, lambda placed: _size(wanted, placed)
    words = Said("are healthy or tolerated", Step.TAINTS)
    yield words, True, lambda placed: _taints(wanted, placed)
    pools = {pool.id: pool for near in case.pools.values() for pool in near}
    words = Said("are free", Step.FREE)
    if wanted.admin:
        words = Said("have counters and shares left", Step.LEFT)
    yield words, True, lambda placed: _holders(wanted, placed, case, pools)


def _on_node(
    placed: PlacedDevice, barred: Mapping[str, Said], seen_by: dict[DeviceId, list[str]]
) -> Said | None:
    """Whether a node that takes the pod has it; later steps count it on those alone."""
    first, *_ = nodes = seen_by[placed.id]
    seen_by[placed.id] = [node for node in nodes if node not in barred]
    if seen_by[placed.id]:
        return None
    return barred[first].within(f"are on {first}, which {barred[first]}")


def _selecting(cel: Cel, matcher: Matcher) -> _Test:
    names = names_in(cel.expression)

    def test(placed: PlacedDevice) -> Said | None:
        try:
            return None if matcher.admits(cel, placed) else _facts(placed, names)
        except SelectorFails as failure:
            error = str(failure.__cause__)
            return Said(f"make it fail ({error})", Lost.SELECTOR_FAILS, error=error)

    return test


def _facts(placed: PlacedDevice, names: frozenset[str]) -> Said:
    """The facts of a device that a selector names."""
    facts: dict[str, Any] = {
        name.rpartition("/")[2]: one.value for name, one in placed.device.attributes.items()
    }
    amounts = {name.rpartition("/")[2]: one.value for name, one in placed.device.capacity.items()}
    values = {name: fact for name, fact in sorted((facts | amounts).items()) if name in names}
    if "driver" in names and not values:
        values = {"driver": placed.id.driver}
    found = [
        f"{name} {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in values.items()
    ]
    text = f"have {', '.join(found)}" if found else "do not"
    values |= {name: parse_quantity(amounts[name]) for name in values.keys() & amounts.keys()}
    return Said(text, Lost.DIFFERS, values=values)


def _size(wanted: Wanted, placed: PlacedDevice) -> Said | None:
    lacking = sorted(set(wanted.requests) - set(placed.device.capacity))
    if lacking:
        text = f"have no {', '.join(lacking)}"
        return Said(text, Lost.CAPACITY_MISSING, capacities=lacking)
    share = share_of(placed.device, wanted.requests)
    if share is not None and fits(placed.device, share, {}):
        return None
    has = {name: placed.device.capacity[name].value for name in sorted(wanted.requests)}
    return Said(
        "have " + ", ".join(f"{name} {value}" for name, value in has.items()),
        Lost.CAPACITY_SMALL,
        capacities={name: parse_quantity(value) for name, value in has.items()},
    )


def _taints(wanted: Wanted, placed: PlacedDevice) -> Said | None:
    taints = wanted.untolerated(placed.device)
    text = f"have the taint {', '.join(map(taint_words, taints))}"
    return Said(text, Lost.TAINTED, taints=taints) if taints else None


def _owners(held: Iterable[Allotment]) -> dict[str, Allotment]:
    """Those that keep a device from others, by their texts, in order."""
    owners = (one for one in held if not one.result.admin_access)
    return {one.words: one for one in sorted(owners, key=lambda one: one.words)}


def _holders(
    wanted: Wanted, placed: PlacedDevice, case: Case, pools: Mapping[PoolId, NodePool]
) -> Said | None:
    """Who has the device, or what it would need of shares and counters.

    Schedulers count those for admin access too (`allocateDevice` of Kubernetes 1.36.3 and 1.37.1).
    """
    owners = _owners(case.held.get(placed.id, ()))
    words, holders = " and ".join(owners), list(owners.values())
    if placed.id in case.taken.whole and not wanted.admin:
        return Said(f"are held by {words}", Lost.HELD, holders=holders)
    share = share_of(placed.device, wanted.requests)
    in_use = case.taken.shared.get(placed.id, {})
    if share is not None and not fits(placed.device, share, in_use):
        left = {
            name: parse_quantity(one.value) - in_use.get(name, Fraction(0))
            for name, one in sorted(placed.device.capacity.items())
            if share[name] + in_use.get(name, Fraction(0)) > parse_quantity(one.value)
        }
        amounts = ", ".join(
            f"{quantity_words(amount)} of {placed.device.capacity[name].value} {name}"
            for name, amount in left.items()
        )
        text = f"have too little left ({amounts}) beside {words}"
        return Said(text, Lost.SHARE_SMALL, left=left, holders=holders)
    if placed.id in case.taken.shared:
        return None
    takers = pools[placed.pool].takers(placed, case.taken)
    owners = _owners(one for other in takers for one in case.held.get(other.id, ()))
    text = f"need what {' and '.join(owners)} has of the same counters"
    return Said(text, Lost.COUNTERS_HELD, holders=list(owners.values())) if owners else None


# --- in sentences --------------------------------------------------------------------------------

_LOSSES = 3
_SHORT: dict[Code, Why] = {
    Step.PUBLISHED: Why.FEW_PUBLISHED,
    Step.CLASS: Why.FEW_OF_CLASS,
    Step.NODES: Why.FEW_ON_NODES,
    Step.SELECTOR: Why.FEW_SELECTED,
    Step.CAPACITY: Why.FEW_LARGE,
    Step.TAINTS: Why.FEW_HEALTHY,
    Step.FREE: Why.FEW_FREE,
    Step.LEFT: Why.FEW_FREE,
}
"""What a request lacks, by the step that leaves too few devices."""


def ask_words(wanted: Wanted) -> str:
    """`2 devices of class npu.huawei.com`."""
    if wanted.count is None:
        return f"all matching devices of class {wanted.class_name} on a node"
    return f"{counted(wanted.count, 'device')} of class {wanted.class_name}"


def names_of(devices: Iterable[DeviceId]) -> str:
    """`npu-0, npu-1 of n1; npu-3 of n2`, with a limit."""
    pools: dict[str, list[str]] = {}
    for device in devices:
        pools.setdefault(device.pool, []).append(device.name)
    parts = [f"{few(names)} of {pool}" for pool, names in islice(pools.items(), _LOSSES)]
    if rest := [len(names) for names in pools.values()][_LOSSES:]:
        parts.append(f"{sum(rest)} more of {counted(len(rest), 'more pool')}")
    return "; ".join(parts)


def loss_words(losses: Sequence[Loss], *, more: bool = False) -> str:
    """`8 are held by claim default/a; 6 have memCapacity 32Gi`, or `6 more have ...`."""
    also = " more" if more else ""
    parts = [
        f"{len(loss.devices)}{also} {_agreeing(loss)}" if loss.devices else loss.why
        for loss in losses[:_LOSSES]
    ]
    rest = losses[_LOSSES:]
    if rest:
        count = sum(len(loss.devices) for loss in rest)
        is_held = all(loss.why.code is Lost.HELD for loss in rest)
        others = counted(len(rest), "other claim" if is_held else "other reason")
        parts.append(f"{count} {'by' if is_held else 'for'} {others}")
    return "; ".join(parts)


def _agreeing(loss: Loss) -> str:
    """The reason with a verb that agrees with the number of devices."""
    if len(loss.devices) != 1:
        return loss.why
    verb, _, rest = loss.why.partition(" ")
    singular = {"have": "has", "are": "is", "do": "does", "need": "needs", "make": "makes"}
    return f"{singular.get(verb, verb)} {rest}"


def short_said(claim: str, funnel: Funnel) -> Said:
    """Why one request cannot have what it wants: the first step that leaves too few."""
    at = funnel.short
    assert at is not None
    step, wanted = funnel.steps[at], funnel.wanted
    text = f"request {wanted.title} of claim {claim} wants {ask_words(wanted)}"
    notes = [loss_words(step.losses)] if step.losses else []
    if at == 0 and not step.left:
        text += ", and no device is published" + "".join(
            f" that can be used: {one}" for one in notes
        )
    else:
        near = [
            loss
            for one in funnel.steps[1:at]
            if one.words.code not in {Step.CLASS, Step.NODES}
            for loss in one.losses
        ]
        if near:
            notes.append(loss_words(near, more=True))
        if at:
            before = funnel.steps[at - 1]
            notes = [f"{before.left} {before.counting}" + ": " * bool(notes) + "; ".join(notes)]
        text += f"; {_left(step, wanted)}" + (f" ({notes[0]})" if notes else "")
    return Said(
        text,
        _SHORT[step.words.code],
        claim=claim,
        request=wanted.title,
        wanted=wanted.count,
        left=step.left,
        mostOnOneNode=step.most,
    )


def _left(step: FunnelStep, wanted: Wanted) -> str:
    """`none is free`, `only 2 are free`, or that they are spread over nodes."""
    if not step.left:
        return f"none {step.counting}"
    if wanted.count is not None and step.left >= wanted.count:
        return f"{step.left} {step.counting}, but at most {step.most} on one node"
    return f"only {step.left} {step.counting}"
