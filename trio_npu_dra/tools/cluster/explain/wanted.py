"""What claims ask for, in the form in which it is held against devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.objects import (
    Claim,
    DeviceClass,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    Toleration,
)
from trio_npu_dra.tools.cluster.said import Said, SaidError, Why

RESULTS_LIMIT = 32
"""Devices in one allocation."""


class ClassMissing(SaidError):
    """A request names a DeviceClass that does not exist."""


@dataclass(frozen=True, slots=True)
class Cel:
    """A selector, and where it stands: `class npu` or `the claim`."""

    origin: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One request or subrequest.

    Attributes:
        name: Of the request.
        sub: Of the subrequest; empty if there are none.
        count: How many devices; None for all that match.
        requests: Amounts of capacities.
    """

    name: str
    sub: str
    class_name: str
    class_selectors: tuple[Cel, ...]
    selectors: tuple[Cel, ...]
    count: int | None
    admin: bool
    tolerations: tuple[Toleration, ...]
    requests: Mapping[str, str]

    @property
    def title(self) -> str:
        """`npu`, or `npu/large` for a subrequest."""
        return f"{self.name}/{self.sub}" if self.sub else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """matchAttribute or distinctAttribute.

    Attributes:
        attribute: Its full name.
        distinct: Whether the values must differ, not agree.
        requests: Of which requests and subrequests; all if empty.
    """

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def is_about(self, wanted: Wanted) -> bool:
        """Whether it binds the devices of a request."""
        return not self.requests or wanted.name in self.requests or wanted.title in self.requests

    @property
    def words(self) -> str:
        """`matchAttribute npu.huawei.com/topologyGroup`."""
        ((name, attribute),) = self.facts.items()
        return f"{name} {attribute}"

    @property
    def facts(self) -> Mapping[str, str]:
        """As in the claim: `matchAttribute` and the attribute."""
        return {"distinctAttribute" if self.distinct else "matchAttribute": self.attribute}


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedClaim:
    """A claim that is not allocated.

    Attributes:
        title: `namespace/name`.
        requests: For each request the choices it leaves, the first that can be had wins.
    """

    title: str
    requests: tuple[tuple[Wanted, ...], ...]
    rules: tuple[Rule, ...]


def wanted_claim(claim: Claim, classes: Mapping[str, DeviceClass]) -> WantedClaim:
    """A claim in that form.

    Raises:
        ClassMissing: A DeviceClass does not exist; the message names request and class.
        Undecided: It asks in a way that this package does not know.
    """
    rules = []
    for constraint in claim.spec.devices.constraints:
        attribute = constraint.match_attribute or constraint.distinct_attribute
        if attribute is None:
            raise Undecided("the claim has a constraint of a kind that is not known here")
        rule = Rule(
            attribute=attribute,
            distinct=constraint.match_attribute is None,
            requests=frozenset(constraint.requests),
        )
        rules.append(rule)
    requests = claim.spec.devices.requests
    return WantedClaim(
        title=claim.title,
        requests=tuple(tuple(_choices(request, classes)) for request in requests),
        rules=tuple(rules),
    )


def _choices(request: DeviceRequest, classes: Mapping[str, DeviceClass]) -> Iterator[Wanted]:
    if request.exactly is not None:
        yield _wanted(request.name, "", request.exactly, classes)
    elif not request.first_available:
        raise Undecided(f"request {request.name} is of a kind that is not known here")
    for sub in request.first_available:
        yield _wanted(request.name, sub.name, sub, classes)


def _wanted(
    name: str, sub: str, ask: ExactDeviceRequest, classes: Mapping[str, DeviceClass]
) -> Wanted:
    title = f"{name}/{sub}" if sub else name
    class_ = classes.get(ask.device_class_name)
    if class_ is None:
        text = (
            f"request {title}: there is no DeviceClass {ask.device_class_name}; "
            f"those that exist: {', '.join(sorted(classes)) or 'none'}"
        )
        name = ask.device_class_name
        raise ClassMissing(Said(text, Why.CLASS_MISSING, request=title, deviceClass=name))
    if ask.derived_attributes:
        raise Undecided(f"request {title} has derived attributes, which are not known here")
    if ask.allocation_mode not in {"ExactCount", "All"}:
        raise Undecided(f"request {title}: allocationMode {ask.allocation_mode} is not known here")
    return Wanted(
        name=name,
        sub=sub,
        class_name=ask.device_class_name,
        class_selectors=tuple(
            Cel(f"class {ask.device_class_name}", one) for one in _cel(class_.spec.selectors, title)
        ),
        selectors=tuple(Cel("the claim", one) for one in _cel(ask.selectors, title)),
        count=None if ask.allocation_mode == "All" else ask.count,
        admin=bool(ask.admin_access),
        tolerations=ask.tolerations,
        requests=ask.capacity.requests if ask.capacity else {},
    )


def _cel(selectors: Iterable[DeviceSelector], title: str) -> Iterator[str]:
    for selector in selectors:
        if selector.cel is None:
            raise Undecided(f"request {title} has a selector that is not CEL")
        yield selector.cel.expression
