"""Whether a node can give claims what they ask for: an exact search, as the scheduler's.

It tries devices in the scheduler's order and checks in the scheduler's order, because a selector
that fails matters only for a device that is tried. It leaves out what cannot succeed: where too few
devices are left, and what is like something that has failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.explain.case import RESULTS_LIMIT, Case, Wanted
from trio_npu_dra.tools.cluster.inventory import DeviceId, PlacedDevice
from trio_npu_dra.tools.cluster.objects import DeviceConstraint
from trio_npu_dra.tools.cluster.pools import CounterKey, consumed, fits, share_of
from trio_npu_dra.tools.cluster.said import Outcome, Said, SaidError, Why

_STRICT_SINCE: Final = 36
"""The minor version of Kubernetes from which nothing is allocated from flawed pools."""
_AS_KNOWN_SINCE: Final = 37
"""That from which a distinctAttribute compares all devices of a request with each other."""
STEPS_LIMIT = 50_000
"""Devices that one search tries at most, which takes about a second."""

TOO_MUCH: Final = Said("there are too many combinations of devices to try", Why.TOO_MANY)
Value = tuple[str, str | int | bool]


class SearchTooLong(Exception):
    """The search has not ended within `STEPS_LIMIT`."""


class AllRefused(SaidError):
    """The scheduler gives up on the pod, because a request for all devices cannot be served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOutlook:
    """What one node can do.

    Attributes:
        outcome: `FREE`, `WAITS`, `FAILS` or `UNDECIDED`.
        why: Of an error, or of what is not decided.
        given: The first allocation that fits.
    """

    outcome: Outcome
    why: Said | None = None
    given: tuple[Given, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """A device that the search has handed out.

    Attributes:
        number: Of the claim.
        share: What it takes of capacities, if the device can be given several times.
        charged: Whether it takes from counters: of several shares the first does.
    """

    number: int
    wanted: Wanted
    placed: PlacedDevice
    share: Mapping[str, Fraction] | None
    charged: bool


def check(case: Case, node: str) -> NodeOutlook:
    """What a node can do for the claims that are asked of it."""
    return _older(case, node) or outlook(case, node)


def first(case: Case) -> tuple[str, tuple[Given, ...]] | None:
    """The first node that can serve it, and with which devices; None if none can.

    None also where it is not decided, and where the scheduler fails.
    """
    for node in case.open:
        found = check(case, node)
        if found.outcome is Outcome.FREE:
            return node, found.given
        if found.outcome is not Outcome.WAITS:
            return None
    return None


def _older(case: Case, node: str) -> NodeOutlook | None:
    """What older schedulers do in another way than is known here; None if that is nothing."""
    minor = case.minor
    if minor is None or minor >= _AS_KNOWN_SINCE:
        return None
    why: str = ""
    flawed = [problem for pool in case.pools[node] if (problem := pool.problem)]
    if flawed and minor < _STRICT_SINCE:
        why = flawed[0]
    for claim in case.asked[node]:
        several = [one for choices in claim.requests for one in choices if one.count != 1]
        if any(rule.distinct and one.is_bound_by(rule) for rule in claim.rules for one in several):
            why = f"claim {claim.title} has a distinctAttribute for several devices of a request"
    if not why:
        return None
    why += f", and what a scheduler of Kubernetes 1.{minor} makes of that is not known here"
    older = Said(why, Why.OLDER_SCHEDULER, minor=minor)
    return NodeOutlook(outcome=Outcome.UNDECIDED, why=older)


def outlook(case: Case, node: str) -> NodeOutlook:
    """Search a node for an allocation."""
    try:
        given = Search(case, node).run()
    except AllRefused as error:
        return NodeOutlook(outcome=Outcome.FAILS, why=error.said)
    except SelectorFails as error:
        why = Said(str(error), Why.SELECTOR_FAILS, error=str(error.__cause__))
        return NodeOutlook(outcome=Outcome.FAILS, why=why)
    except SearchTooLong:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=TOO_MUCH)
    except Undecided as error:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=not_known(error))
    return NodeOutlook(outcome=Outcome.WAITS if given is None else Outcome.FREE, given=given or ())


def not_known(why: object) -> Said:
    """That we cannot tell, and why."""
    return Said(str(why), Why.NOT_KNOWN)


class Search:
    """One search on one node; without taints it shows what they cost."""

    def __init__(self, case: Case, node: str) -> None:
        self._pools = case.pools[node]
        self._devices = [placed for pool in self._pools if not pool.flaw for placed in pool.devices]
        self._claims = case.asked[node]
        self._requests = [
            (number, choices)
            for number, claim in enumerate(self._claims)
            for choices in claim.requests
        ]
        self._taken = case.taken
        self._selects = case.matcher
        self._ignore_taints = case.ignore_taints
        self._left = {pool.id: pool.left(case.taken) for pool in self._pools}
        self._all: dict[tuple[int, str], list[PlacedDevice]] = {}
        self._given: list[Given] = []
        self._suiting: dict[tuple[int, str, DeviceId], bool] = {}
        self._failed: set[Hashable] = set()
        self._steps = 0

    def run(self) -> tuple[Given, ...] | None:
        """The first allocation that is found; None if there is none.

        Raises:
            SelectorFails: A selector fails for a device that is tried.
            AllRefused: All devices are asked for, and that cannot be.
            SearchTooLong: It takes too long.
            Undecided: We cannot tell.
        """
        for number, choices in self._requests:
            for wanted in choices:
                if wanted.count is None:
                    self._all[number, wanted.title] = list(self._all_of(wanted))
        return tuple(self._given) if self._serve(0) else None

    def _all_of(self, wanted: Wanted) -> Iterator[PlacedDevice]:
        for pool in self._pools:
            if problem := pool.problem:
                text = f"request {wanted.title} asks for all devices, but {problem}"
                raise AllRefused(Said(text, Why.ALL_FAILS, request=wanted.title))
            for placed in pool.devices:
                if self._selects(wanted, placed):
                    share = share_of(placed.device, wanted.requests)
                    if share is not None and fits(placed.device, share, {}):
                        yield placed

    def _serve(self, at: int) -> bool:
        """Give the request with this number its devices, then those after it theirs."""
        if at == len(self._requests):
            return True
        number, choices = self._requests[at]
        return any(self._more(number, at, wanted, 0) for wanted in choices)

    def _more(self, number: int, at: int, wanted: Wanted, done: int) -> bool:
        """Give the request the rest of its devices, then everything that comes after it."""
        is_all = wanted.count is None
        devices = self._all[number, wanted.title] if is_all else self._devices
        count = len(devices) if wanted.count is None else wanted.count
        if not devices:
            return False
        if done == count:
            return self._serve(at + 1)
        if self._is_hopeless(number, wanted, count - done):
            return False
        state, failed = None, set[Hashable]()
        for placed in devices[done : done + 1] if is_all else devices:
            if state and state.of(placed.id) in failed:
                continue
            self._steps += 1
            if self._steps > STEPS_LIMIT:
                raise SearchTooLong
            if self._take(number, wanted, placed, must=is_all):
                if self._more(number, at, wanted, done + 1):
                    return True
                self._given.pop()
                state = state or self._state(number, wanted)
                failed.add(state.of(placed.id))
        if state and not is_all:
            self._failed.add((number, wanted.title, state.whole))
        return False

    def _is_hopeless(self, number: int, wanted: Wanted, count: int) -> bool:
        """Whether it is known that a request cannot have so many more devices."""
        given = sum(entry.number == number for entry in self._given)
        if given + count > RESULTS_LIMIT or wanted.count is None:
            return given + count > RESULTS_LIMIT
        if self._failed:
            whole = self._state(number, wanted).whole
            if (number, wanted.title, whole) in self._failed:
                return True
        left = 0
        for placed in self._devices:
            if not self._is_in_use(number, wanted, placed):
                suits = self._suiting.get((number, wanted.title, placed.id))
                if suits is None:  # its selectors may fail when it is tried
                    return False
                left += suits
        return left < count

    def _take(self, number: int, wanted: Wanted, placed: PlacedDevice, *, must: bool) -> bool:
        """Hand a device out, if it can be; *must* says that its selectors are known to admit it."""
        if self._is_in_use(number, wanted, placed):
            return False
        if not must and not self._suits(number, wanted, placed):
            return False
        if not self._suffices(wanted, placed, self._given):
            return False
        if not all(
            self._agrees(rule, number, wanted, placed) for rule in self._claims[number].rules
        ):
            if must:
                text = (
                    f"request {wanted.title} asks for all devices, but with {placed.id.name} of "
                    f"pool {placed.id.pool} a constraint of the claim does not hold"
                )
                raise AllRefused(Said(text, Why.ALL_FAILS, request=wanted.title))
            return False
        is_shared = placed.device.allow_multiple_allocations
        share = share_of(placed.device, wanted.requests) if is_shared else None
        charged = self._is_charged(placed, self._given)
        self._given.append(Given(number, wanted, placed, share, charged))
        return True

    def _is_in_use(self, number: int, wanted: Wanted, placed: PlacedDevice) -> bool:
        mine = [one for one in self._given if one.placed == placed]
        if any(one.number == number and one.wanted is wanted for one in mine):
            return True  # a request has no device twice
        whole = [one.number for one in mine if one.share is None]
        if wanted.admin:
            return number in whole
        return placed.id in self._taken.whole or bool(whole)

    def _suits(self, number: int, wanted: Wanted, placed: PlacedDevice) -> bool:
        """Whether a request could have a device that is not in use, were it the first to get one.

        Raises:
            SelectorFails: A selector fails for it.
            Undecided: We cannot tell.
        """
        key = number, wanted.title, placed.id
        if key not in self._suiting:
            self._suiting[key] = self._selects(wanted, placed) and self._suffices(wanted, placed)
        return self._suiting[key]

    def _suffices(self, wanted: Wanted, placed: PlacedDevice, given: Sequence[Given] = ()) -> bool:
        """Whether enough of a device is left after others were given, and its taints tolerated."""
        share = share_of(placed.device, wanted.requests)
        return (
            share is not None
            and fits(placed.device, share, self._in_shares(placed, given))
            and (not self._is_charged(placed, given) or self._counters_suffice(placed, given))
            and (self._ignore_taints or not wanted.untolerated(placed.device))
        )

    def _is_charged(self, placed: PlacedDevice, given: Sequence[Given]) -> bool:
        """Whether the next to get a device takes from counters: of several shares the first."""
        return not placed.device.allow_multiple_allocations or not (
            placed.id in self._taken.shared
            or any(entry.placed == placed and entry.share is not None for entry in given)
        )

    def _in_shares(self, placed: PlacedDevice, given: Sequence[Given]) -> Mapping[str, Fraction]:
        sums = dict(self._taken.shared.get(placed.id, {}))
        for entry in given:
            if entry.placed == placed:
                for name, amount in (entry.share or {}).items():
                    sums[name] = sums.get(name, Fraction(0)) + amount
        return sums

    def _counters_suffice(self, placed: PlacedDevice, given: Sequence[Given]) -> bool:
        """Whether all counters of the pool suffice: one that is overdrawn blocks all of it."""
        if not placed.device.consumes_counters:
            return True
        if any(one.compatibility_groups for one in placed.device.consumes_counters):
            raise Undecided(f"{placed.id.name} has compatibility groups, which are not known here")
        left = dict(self._left[placed.pool])
        for entry in given:
            if entry.charged and entry.placed.pool == placed.pool:
                _subtract(left, entry.placed)
        _subtract(left, placed)
        return all(amount >= 0 for amount in left.values())

    def _agrees(
        self, rule: DeviceConstraint, number: int, wanted: Wanted, placed: PlacedDevice
    ) -> bool:
        if not wanted.is_bound_by(rule):
            return True
        value = value_of(rule.attribute, placed)
        if value is None:
            return False
        others = (
            value_of(rule.attribute, entry.placed)
            for entry in self._given
            if entry.number == number and entry.wanted.is_bound_by(rule)
        )
        return all((other == value) is not rule.distinct for other in others)

    def _state(self, number: int, wanted: Wanted) -> State:
        """What there is to give to a request and to all that come after it."""
        rules = self._claims[number].rules
        uses = (
            (
                entry.placed.id,
                (
                    entry.number,
                    entry.wanted.admin,
                    entry.wanted is wanted,
                    frozenset((entry.share or {}).items()),
                    entry.number == number
                    and tuple(entry.wanted.is_bound_by(rule) for rule in rules),
                ),
            )
            for entry in self._given
        )
        return self._alike.state(uses)

    @cached_property
    def _alike(self) -> Alike:
        left: dict[Link, list[Hashable]] = {}
        for pool, counters in self._left.items():
            for (set_, name), amount in sorted(counters.items()):
                left.setdefault((pool, set_), []).append((name, amount))
        known = {placed.id: self._traits(placed) for placed in self._devices}
        return Alike(known, {link: tuple(amounts) for link, amounts in left.items()})

    def _traits(self, placed: PlacedDevice) -> Traits:
        def known(find: Callable[[], Hashable]) -> Hashable:
            try:
                return find()
            except (SelectorFails, Undecided):
                return placed.id  # as no other device

        device, taken = placed.device, self._taken
        facts: list[Hashable] = [placed.id in taken.whole]
        if device.allow_multiple_allocations:
            facts += [repr(device.capacity), repr(taken.shared.get(placed.id))]
        links: list[tuple[Link, Hashable]] = [
            ((placed.pool, set_), (name, amount)) for (set_, name), amount in consumed(device)
        ]
        for number, claim in enumerate(self._claims):
            for wanted in (wanted for choices in claim.requests for wanted in choices):
                facts.append(known(partial(self._suits, number, wanted, placed)))
                if placed in self._all.get((number, wanted.title), ()):
                    facts.append(placed.id)  # the order of all decides what fails first
            for at, rule in enumerate(claim.rules):
                value = known(partial(value_of, rule.attribute, placed))
                if rule.distinct and value is not None:
                    links.append(((number, at, value), None))
                facts.append(value is None if rule.distinct else value)
        return tuple(facts), links


def value_of(attribute: str, placed: PlacedDevice) -> Value | None:
    """A value that is equal to that of another device if both have the same type and value.

    Raises:
        Undecided: It is a list, which newer schedulers compare and others do not.
    """
    domain, _, short = attribute.rpartition("/")
    found = placed.device.attributes.get(attribute)
    if found is None and domain == placed.id.driver:
        found = placed.device.attributes.get(short)
    if found is None:
        return None
    if found.value is None:
        raise Undecided(f"the attribute {attribute} of {placed.id.name} is a list")
    kind = "version" if found.version is not None else type(found.value).__name__
    return kind, found.value


def _subtract(left: dict[CounterKey, Fraction], placed: PlacedDevice) -> None:
    for key, amount in consumed(placed.device):
        left[key] -= amount


# --- what is alike -------------------------------------------------------------------------------

Link = tuple[Hashable, ...]
"""What devices have in common: a counter set, or a value that only one of them may have."""
Traits = tuple[Hashable, Sequence[tuple[Link, Hashable]]]
"""All that a search knows of a device: what is equal for devices that are alike apart from their
links, and what it takes of each link."""


class Alike:
    """The devices of a search, in cells: what has a link is in the cell of all others with it.

    Cells are alike if they have the same devices in the same order, whatever their links are
    called, and as much of each link is left. Of sixteen NPUs there are 12,870 choices of eight, and
    where they are alike each leaves the same to what comes after it: where one leads nowhere, none
    does.
    """

    def __init__(self, known: Mapping[DeviceId, Traits], left: Mapping[Link, Hashable]) -> None:
        self._kinds: dict[DeviceId, int] = {}
        self._cells: dict[DeviceId, tuple[int, int]] = {}
        numbers: dict[Hashable, int] = {}  # kinds are compared often, and are large
        for at, cell in enumerate(_cells(known)):
            names: dict[Link, int] = {}
            for device in cell:
                facts, links = known[device]
                takes = tuple((names.setdefault(link, len(names)), part) for link, part in links)
                kind = facts, takes
                self._kinds[device] = numbers.setdefault(kind, len(numbers))
            kinds = tuple(self._kinds[device] for device in cell)
            whole = kinds, tuple(left.get(link) for link in names)
            self._cells |= dict.fromkeys(cell, (at, numbers.setdefault(whole, len(numbers))))

    def state(self, given: Iterable[tuple[DeviceId, Hashable]]) -> State:
        """How things are after devices were given, each for some use."""
        uses: dict[DeviceId, Counter[Hashable]] = {}
        for device, use in given:
            uses.setdefault(device, Counter())[use] += 1
        devices = {
            device: (self._kinds[device], frozenset(counts.items()))
            for device, counts in uses.items()
        }
        found: dict[tuple[int, int], Counter[Hashable]] = {}
        for device, one in devices.items():
            found.setdefault(self._cells[device], Counter())[one] += 1
        cells = {cell: (cell[1], frozenset(counts.items())) for cell, counts in found.items()}
        whole = frozenset(Counter(cells.values()).items())
        return State(whole, self._kinds, self._cells, devices, cells)


@dataclass(frozen=True, slots=True)
class State:
    """What devices were given for; `whole` is equal if what is left is alike."""

    whole: Hashable
    _kinds: Mapping[DeviceId, int]
    _cells: Mapping[DeviceId, tuple[int, int]]
    _used: Mapping[DeviceId, Hashable]
    _used_cells: Mapping[tuple[int, int], Hashable]

    def of(self, device: DeviceId) -> Hashable:
        """Of one device; equal for those of which it does not matter which is given next."""
        cell = self._cells[device]
        return self._used_cells.get(cell, cell[1]), self._used.get(device, self._kinds[device])


def _cells(known: Mapping[DeviceId, Traits]) -> list[tuple[DeviceId, ...]]:
    """The devices by what they are linked with, in their order."""
    cell_of: dict[DeviceId, int] = {device: at for at, device in enumerate(known)}
    first: dict[Link, DeviceId] = {}
    for device, traits in known.items():
        for link, _ in traits[1]:
            one, other = cell_of[first.setdefault(link, device)], cell_of[device]
            if one != other:
                cell_of |= {at: one for at, cell in cell_of.items() if cell == other}
    cells: dict[int, list[DeviceId]] = {}
    for device, cell in cell_of.items():
        cells.setdefault(cell, []).append(device)
    return list(map(tuple, cells.values()))
