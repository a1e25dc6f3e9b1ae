"""What each node can do for a pod's claims, and what would change that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.explain.funnel import Surroundings
from trio_npu_dra.tools.cluster.explain.matcher import Matcher
from trio_npu_dra.tools.cluster.explain.search import (
    AllRefused,
    Given,
    Search,
    SearchTooLong,
    value_of,
)
from trio_npu_dra.tools.cluster.explain.wanted import RESULTS_LIMIT, WantedClaim
from trio_npu_dra.tools.cluster.explain.words import counted
from trio_npu_dra.tools.cluster.inventory import Allotment, DeviceId, PlacedDevice, taken
from trio_npu_dra.tools.cluster.said import Action, Outcome, Said, Why

_HOLDERS_TRIED = 40
_NODES_TRIED = 20
_ENDLESS_TRIED = 5
_TOO_MUCH = Said("there are too many combinations of devices to try", Why.TOO_MANY)


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


def outlook(
    node: str,
    claims: Sequence[WantedClaim],
    around: Surroundings,
    matcher: Matcher,
    *,
    ignore_taints: bool = False,
) -> NodeOutlook:
    """Search a node for an allocation."""
    search = Search(around.pools[node], claims, around.taken, matcher, ignore_taints=ignore_taints)
    try:
        given = search.run()
    except (SelectorFails, AllRefused) as error:
        return NodeOutlook(outcome=Outcome.FAILS, why=_failure(error))
    except SearchTooLong:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=_TOO_MUCH)
    except Undecided as error:
        return NodeOutlook(outcome=Outcome.UNDECIDED, why=not_known(error))
    if given is None:
        return NodeOutlook(outcome=Outcome.WAITS)
    return NodeOutlook(outcome=Outcome.FREE, given=given)


def _failure(error: SelectorFails | AllRefused) -> Said:
    if isinstance(error, AllRefused):
        return error.said
    return Said(str(error), Why.SELECTOR_FAILS, error=str(error.__cause__))


def not_known(why: object) -> Said:
    """That we cannot tell, and why."""
    return Said(str(why), Why.NOT_KNOWN)


def together_said(wanted: Sequence[WantedClaim], around: Surroundings, matcher: Matcher) -> Said:
    """The reason: a constraint, a device that is wanted twice, or too little of something."""
    rules = [(claim, rule) for claim in wanted for rule in claim.rules]
    unbound = [replace(claim, rules=()) for claim in wanted]
    devices = {
        placed.id: placed
        for pools in around.pools.values()
        for pool in pools
        for placed in pool.devices
    }
    nodes = [node for node in around.pools if node not in around.barred]
    for node in nodes if rules else ():
        look = outlook(node, unbound, around, matcher)
        if look.outcome is Outcome.UNDECIDED and look.why is not None:
            return look.why
        if look.outcome is Outcome.FREE:
            given = [devices[one.device] for one in look.given]
            values = "; ".join(_values(rule.attribute, given) for _, rule in rules)
            words = " and ".join(f"{rule.words} of claim {claim.title}" for claim, rule in rules)
            return Said(
                f"enough devices of one node are free, but no choice of them satisfies {words}; "
                f"on {node} there would be {values}",
                Why.CONSTRAINED,
                constraints=[{"claim": claim.title, **rule.facts} for claim, rule in rules],
            )
    asked = counted(sum(len(claim.requests) for claim in wanted), "request")
    why = Said(
        "no node has enough free devices, counters or shares for all of them together",
        Why.FEW_TOGETHER,
    )
    if any(_collide(node, unbound, around, matcher) for node in nodes):
        why = Said(
            "some want the same device, and a claim cannot have a device twice, not even with "
            "admin access",
            Why.DEVICE_TWICE_WANTED,
        )
    return why.within(f"each of its {asked} could be served by itself, but {why}")


def _collide(
    node: str, claims: Sequence[WantedClaim], around: Surroundings, matcher: Matcher
) -> bool:
    """Whether requests with admin access, which need nothing free, are in the way of others."""
    parts = [
        [
            replace(claim, requests=tuple(one for one in claim.requests if not one[0].admin))
            for claim in claims
        ]
    ]
    parts += (
        [replace(claim, requests=(choices,))]
        for claim in claims
        for choices in claim.requests
        if choices[0].admin
    )
    return len(parts) > 1 and all(
        outlook(node, part, around, matcher).outcome is Outcome.FREE for part in parts
    )


def _values(attribute: str, given: Sequence[PlacedDevice]) -> str:
    """`npu-1 with topologyGroup ring-0, npu-3 with topologyGroup ring-1`."""
    short = attribute.rpartition("/")[2]
    words = []
    for placed in given:
        value = value_of(attribute, placed)
        how = f"with {short} {value[1]}" if value else f"without {short}"
        words.append(f"{placed.id.name} {how}")
    return ", ".join(words)


def _end_of(one: Allotment, node: str) -> Said:
    if not one.users:
        text = f"deleting {one.words}, which no pod uses, on {node}"
        return Said(text, Action.DELETE_CLAIM, claim=one.claim, node=node)
    deleted = ", which is being deleted"
    ends = ("end" if len(one.users) > 1 else "ends") + deleted * bool(one.ending)
    claim = f"claim {one.claim}" + deleted * one.is_deleted
    text = f"when {' and '.join(one.users)} {ends} ({claim}), on {node}"
    return Said(text, Action.PODS_END, claim=one.claim, users=one.users, node=node)


class Helps:
    """Tries what would make an allocation possible, one change at a time."""

    def __init__(
        self, claims: tuple[WantedClaim, ...], around: Surroundings, matcher: Matcher
    ) -> None:
        self._claims = claims
        self._around = around
        self._matcher = matcher
        self._open = [node for node in around.pools if node not in around.barred][:_NODES_TRIED]
        self._endless = 0  # searches that found no end

    def found(self) -> tuple[Said, ...]:
        """What would help, what harms least first and the work of others last."""
        return (
            *self._fewer(),
            *self._unconstrained(),
            *self._tolerated(),
            *islice(self._unbarred(), 3),
            *islice(self._released(), 3),
        )

    def _is_free(
        self,
        nodes: Iterable[str],
        claims: tuple[WantedClaim, ...] | None = None,
        *,
        around: Surroundings | None = None,
        ignore_taints: bool = False,
    ) -> str:
        """The first node that could give it; empty if none could."""
        for node in nodes:
            if self._endless == _ENDLESS_TRIED:  # each takes a second
                break
            view = outlook(
                node,
                claims or self._claims,
                around or self._around,
                self._matcher,
                ignore_taints=ignore_taints,
            )
            if view.outcome is Outcome.FREE:
                return node
            self._endless += view.why == _TOO_MUCH
        return ""

    def _released(self) -> Iterator[Said]:
        """Claims whose end would do; if none alone would, whether all together would.

        A claim goes when its pods have: to delete it before frees nothing.
        """
        owners = {one.claim: one for held in self._around.held.values() for one in held}
        near = [one for one in owners.values() if self._is_near(one)]
        near.sort(key=lambda one: (not one.users, not one.is_ending, one.claim))
        useful = near[:_HOLDERS_TRIED]
        is_any = False
        for one in useful:
            node = self._is_free(self._open, around=self._without({one.claim}))
            if node:
                is_any = True
                yield _end_of(one, node)
        used = {one.claim for one in useful if one.users}
        everyone = {one.claim for one in useful}
        for claims, rest in ((used, ""), (everyone, ", and those that no pod uses are deleted")):
            if not is_any and (node := self._is_free(self._open, around=self._without(claims))):
                text = f"when the pods of several claims on {node} end{rest}"
                yield Said(text, Action.CLAIMS_END, node=node)
                break

    def _is_near(self, one: Allotment) -> bool:
        """Whether it holds a device that one of the requests could have."""
        name = DeviceId(one.result.driver, one.result.pool, one.result.device)
        for node in self._open:
            for pool in self._around.pools[node]:
                if (pool.id.driver, pool.id.name) == name[:2]:
                    return True
        return False

    def _without(self, claims: set[str]) -> Surroundings:
        held = {
            device: tuple(one for one in held if one.claim not in claims)
            for device, held in self._around.held.items()
        }
        return replace(self._around, held=held, taken=taken(held))

    def _tolerated(self) -> Iterator[Said]:
        if node := self._is_free(self._open, ignore_taints=True):
            text = f"tolerations of the devices' taints on {node}, or their recovery"
            yield Said(text, Action.TOLERATE, node=node)

    def _unconstrained(self) -> Iterator[Said]:
        for number, claim in enumerate(self._claims):
            for rule in claim.rules:
                rest = tuple(one for one in claim.rules if one is not rule)
                changed = replace(claim, rules=rest)
                claims = (*self._claims[:number], changed, *self._claims[number + 1 :])
                if node := self._is_free(self._open, claims):
                    yield Said(
                        f"claim {claim.title} without {rule.words}, on {node}",
                        Action.DROP_CONSTRAINT,
                        claim=claim.title,
                        constraint=rule.facts,
                        node=node,
                    )

    def _unbarred(self) -> Iterator[Said]:
        for node, why in islice(self._around.barred.items(), _NODES_TRIED):
            if node in self._around.pools and self._is_free([node]):
                text = f"{node} has what it asks for, but {why}"
                yield Said(text, Action.OPEN_NODE, node=node, obstacles=why.facts["obstacles"])

    def _fewer(self) -> Iterator[Said]:
        """Fewer devices for one request, the most that can be had."""
        for number, claim in enumerate(self._claims):
            for at, choices in enumerate(claim.requests):
                wanted = choices[-1]
                most = min((wanted.count or 1) - 1, RESULTS_LIMIT)
                for count in range(most, 0, -1):
                    less = (replace(wanted, count=count),)
                    requests = (*claim.requests[:at], less, *claim.requests[at + 1 :])
                    changed = replace(claim, requests=requests)
                    claims = (*self._claims[:number], changed, *self._claims[number + 1 :])
                    if node := self._is_free(self._open, claims):
                        yield Said(
                            f"{count} instead of {wanted.count} for request {wanted.title} of "
                            f"{claim.title}, on {node}",
                            Action.FEWER,
                            claim=claim.title,
                            request=wanted.title,
                            count=count,
                            node=node,
                        )
                        break
