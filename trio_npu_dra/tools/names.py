"""Names in claims and classes that nothing has: requests, attributes, capacities, DeviceClasses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Final

import yaml

from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.agent.config.refusals import show_name
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.model import PUBLISHED, ChipFamily
from trio_npu_dra.tools.cluster.cel import Undecided
from trio_npu_dra.tools.cluster.cel.tokens import tokens
from trio_npu_dra.tools.yaml_nodes import Loader, Remark, find, items, line_of, members, scalar

CLASSES: Final = frozenset(
    {
        DRIVER,
        *(f"{family.lower()}.{DRIVER}" for family in ChipFamily),
        *(f"counted.{DRIVER}", f"counted.ascend910.{DRIVER}"),
    }
)
"""The DeviceClasses that come with the driver and its examples, and have its domain."""
KNOWN: Final[Mapping[str, Collection[str]]] = {
    "attributes": frozenset(
        {
            *(name for mark in PUBLISHED.values() for name in mark.names),
            *(fact_names.TYPE, fact_names.TEMPLATE, fact_names.PARENT_UUID),
            *(fact_names.MULTI_DIE_POLICY, fact_names.DEVICE_SHARE, fact_names.DRIVER_VERSION),
        }
    ),
    "capacity": frozenset(
        (fact_names.AI_CORES, fact_names.AI_CPUS, fact_names.MEMORY, fact_names.SHARES)
    ),
}
"""What devices can have; names without a domain have the driver's."""
_ALIKE: Final = 0.9
"""How much a name outside of our domain is like one of ours that was meant."""


def classes_asked(devices: yaml.Node | None, loader: Loader) -> Iterator[Remark]:
    """The DeviceClass of each request."""
    for _, request in _requests(devices, loader):
        node = find(request, loader, "deviceClassName")
        if node is not None:
            yield Remark(line=node.start_mark.line + 1, text=scalar(node))


def unknown_class(name: str, defined: Collection[str]) -> str:
    """Why a DeviceClass may be none: only a cluster knows which its operator has; or empty."""
    if name in CLASSES or name in defined:
        return ""
    is_ours = name.endswith(f".{DRIVER}")
    if not is_ours and not get_close_matches(name, CLASSES, n=1, cutoff=_ALIKE):
        return ""
    likely = _likely(name, {*CLASSES, *defined})
    return f"DeviceClass {show_name(name)} is neither the driver's nor in these files{likely}"


def unknown_in_claim(devices: yaml.Node | None, loader: Loader) -> Iterator[Remark]:
    """Requests that are not in the claim, attributes and capacities that no device has."""
    requests = list(_requests(devices, loader))
    known = [name for name, _ in requests]
    for field in ("constraints", "config"):
        for one in items(find(devices, loader, field)):
            for node in items(find(one, loader, "requests")):
                yield from _unknown_request(node, known)
    for constraint in items(find(devices, loader, "constraints")):
        for field in ("matchAttribute", "distinctAttribute"):
            yield from _unknown_attribute(field, find(constraint, loader, field))
    for _, request in requests:
        yield from unknown_in_selectors(request, loader)
        yield from _unknown_amounts(request, loader)


def _requests(devices: yaml.Node | None, loader: Loader) -> Iterator[tuple[str, yaml.Node]]:
    """Each request and subrequest by its name: `npu`, `npu/large`.

    Before resource.k8s.io/v1beta2 a request has itself what `exactly` has.
    """
    for request in items(find(devices, loader, "requests")):
        name = scalar(find(request, loader, "name"))
        yield name, find(request, loader, "exactly") or request
        for sub in items(find(request, loader, "firstAvailable")):
            yield f"{name}/{scalar(find(sub, loader, 'name'))}", sub


def _unknown_request(node: yaml.Node, known: Collection[str]) -> Iterator[Remark]:
    name = scalar(node)
    if name not in known:
        text = f"there is no request {show_name(name)}{_likely(name, known)}"
        yield Remark(line=node.start_mark.line + 1, text=text)


def _unknown_attribute(field: str, node: yaml.Node | None) -> Iterator[Remark]:
    domain, _, name = scalar(node).rpartition("/")
    if node is not None and domain == DRIVER and name not in KNOWN["attributes"]:
        text = f"{field}: {_no_device_has('attributes', name)}"
        yield Remark(line=node.start_mark.line + 1, text=text)


def _unknown_amounts(request: yaml.Node, loader: Loader) -> Iterator[Remark]:
    """Amounts of capacities; a name without a domain is the driver's, if the class is ours."""
    is_ours = scalar(find(request, loader, "deviceClassName")) in CLASSES
    for node, _ in members(loader, find(request, loader, "capacity", "requests")):
        domain, _, name = scalar(node).rpartition("/")
        if (domain == DRIVER or (not domain and is_ours)) and name not in KNOWN["capacity"]:
            text = f"capacity.requests: {_no_device_has('capacity', name)}"
            yield Remark(line=node.start_mark.line + 1, text=text)


def unknown_in_selectors(asked: yaml.Node | None, loader: Loader) -> Iterator[Remark]:
    """Attributes and capacities in the CEL of a request or a class that no device has."""
    for selector in items(find(asked, loader, "selectors")):
        node = find(selector, loader, "cel", "expression")
        for kind, name in dict.fromkeys(_named(scalar(node))):
            if node is not None and name not in KNOWN[kind]:
                text = f'device.{kind}["{DRIVER}"]: {_no_device_has(kind, name)}'
                yield Remark(line=line_of(name, node), text=text)


def _no_device_has(kind: str, name: str) -> str:
    other = "capacity" if kind == "attributes" else "attributes"
    standard = f"resource.kubernetes.io/{name}"
    if name in KNOWN[other]:
        hint = f"; it is in device.{other}"
    elif standard in KNOWN[kind]:
        hint = f"; did you mean {standard}?"
    else:
        hint = _likely(name, KNOWN[kind])
    return f"no device has the {kind.removesuffix('s')} {show_name(name)}{hint}"


def _likely(name: str, known: Collection[str]) -> str:
    """The end of a remark: the known name that is most like it; empty if none is."""
    asked, by_lower = name.lower(), {one.lower(): one for one in known}
    found = get_close_matches(asked, by_lower)
    if not found:
        return ""
    swapped = (one for one in found if sorted(one) == sorted(asked))  # `modle`: not `module`
    return f"; did you mean {show_name(by_lower[next(swapped, found[0])])}?"


def _named(expression: str) -> Iterator[tuple[str, str]]:
    """The facts of our devices that CEL names: `attributes` or `capacity`, and the name.

    `device.attributes["npu.huawei.com"].model`, `...["model"]`, both with `?`, or
    `"model" in device.attributes["npu.huawei.com"]`. What is named in other ways is not seen.
    """
    try:
        words = [word.text for word in tokens(expression)]
    except Undecided:
        return
    for at, word in enumerate(words):
        before, after = words[max(at - 2, 0) : at], (*words[at + 1 : at + 9], *[""] * 8)
        _, kind, opening, domain, _, access, name, end = after[:8]
        if word != "device" or before[-1:] == ["."] or kind not in KNOWN:
            continue
        if opening not in {"[", "[?"} or domain[1:-1] != DRIVER:
            continue
        if access in {".", ".?"} and end != "(":
            yield kind, name
        elif access in {"[", "[?"} and _is_text(name) and end == "]":
            yield kind, name[1:-1]
        elif before[1:] == ["in"] and _is_text(before[0]):
            yield kind, before[0][1:-1]


def _is_text(word: str) -> bool:
    return word.startswith(("'", '"'))
