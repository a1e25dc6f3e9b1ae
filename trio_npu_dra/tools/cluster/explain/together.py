"""Why requests cannot be served together although each could be served alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trio_npu_dra.tools.cluster.explain.explanation import Outcome
from trio_npu_dra.tools.cluster.explain.funnel import Surroundings
from trio_npu_dra.tools.cluster.explain.matcher import Matcher
from trio_npu_dra.tools.cluster.explain.outlook import outlook
from trio_npu_dra.tools.cluster.explain.search import value_of
from trio_npu_dra.tools.cluster.explain.wanted import WantedClaim
from trio_npu_dra.tools.cluster.explain.words import counted
from trio_npu_dra.tools.cluster.inventory import PlacedDevice


def together_words(wanted: Sequence[WantedClaim], around: Surroundings, matcher: Matcher) -> str:
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
        if look.outcome is Outcome.FREE:
            given = [devices[one.device] for one in look.given]
            values = "; ".join(_values(rule.attribute, given) for _, rule in rules)
            words = " and ".join(f"{rule.words} of claim {claim.title}" for claim, rule in rules)
            return (
                f"enough devices of one node are free, but no choice of them satisfies {words}; "
                f"on {node} there would be {values}"
            )
    asked = counted(sum(len(claim.requests) for claim in wanted), "request")
    why = "no node has enough free devices, counters or shares for all of them together"
    if any(_collide(node, unbound, around, matcher) for node in nodes):
        why = (
            "some want the same device, and a claim cannot have a device twice, not even with "
            "admin access"
        )
    return f"each of its {asked} could be served by itself, but {why}"


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
