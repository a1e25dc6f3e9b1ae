"""Validation and defaulting of the stand-in API server, as far as this driver can run into them.

Fields and words are those of the real API server: the conformance scenarios check both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trio_npu_dra.standins.api_status import ApiRefusal, qualified

Wire = dict[str, Any]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"([a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(\.(0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
_QUANTITY = re.compile(r"(\d+)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?")
_SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "events": ("involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason"),
    "nodes": ("metadata.name",),
    "resourceclaims": ("metadata.name", "metadata.namespace"),
    "resourceslices": ("metadata.name", "spec.driver", "spec.nodeName"),
}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_DEVICES = 128
_DEVICES_WITH_TAINTS = 64
_ATTRIBUTES = 32
_TAINTS = 16
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_VALUE_BYTES = 64


def now() -> str:
    """The time as the API server writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Terms = tuple[tuple[str, str], ...]
"""Dotted fields and their wanted values."""


def terms(plural: str, selector: str) -> Terms:
    """A field selector `a=b,c=d` split into its terms.

    Raises:
        ApiRefusal: A field cannot be used in a selector.
    """
    pairs = [term.partition("=")[::2] for term in selector.split(",") if term]
    for field, _ in pairs:
        if field not in _SELECTABLE[plural]:
            raise ApiRefusal(400, "BadRequest", f"field label not supported: {field}")
    return tuple(pairs)


def matches(obj: Wire, wanted: Terms) -> bool:
    """Whether *obj* has all the values."""
    return all(_value(obj, field) == value for field, value in wanted)


def _value(obj: Any, field: str) -> Any:
    for step in field.split("."):
        obj = obj.get(step, "")
    return obj


def refuse_immutable_changes(plural: str, old: Wire, new: Wire) -> None:
    """Refuse changes of driver, node and pool name of a slice.

    Raises:
        ApiRefusal: One of them changed.
    """
    if plural != "resourceslices":
        return
    for field, before, after in (
        ("spec.driver", old["spec"].get("driver"), new["spec"].get("driver")),
        ("spec.nodeName", old["spec"].get("nodeName"), new["spec"].get("nodeName")),
        ("spec.pool.name", old["spec"]["pool"]["name"], new["spec"]["pool"]["name"]),
    ):
        if before != after:
            raise _invalid(new, f'{field}: Invalid value: "{after}": field is immutable')


def admit_slice(obj: Wire, *, keeps_taints: bool) -> None:
    """Validate a slice and change it to the form that is stored.

    Raises:
        ApiRefusal: It is invalid.
    """
    name = obj["metadata"]["name"]
    if not _SUBDOMAIN.fullmatch(name):
        raise _invalid(obj, f'metadata.name: Invalid value: "{name}": {_lowercase("subdomain")}')
    spec = obj["spec"]
    count = spec["pool"].get("resourceSliceCount", 0)
    if count < 1:
        why = f"Invalid value: {count}: must be greater than zero"
        raise _invalid(obj, f"spec.pool.resourceSliceCount: {why}")
    devices = spec.get("devices") or []
    if not devices:
        spec.pop("devices", None)
    if not keeps_taints:
        for device in devices:
            device.pop("taints", None)
    limit = _DEVICES_WITH_TAINTS if any(d.get("taints") for d in devices) else _DEVICES
    _refuse_too_many(obj, "spec.devices", len(devices), limit)
    names: set[str] = set()
    for index, device in enumerate(devices):
        where = f"spec.devices[{index}]"
        _admit_device(obj, where, device)
        if device["name"] in names:
            raise _invalid(obj, f'{where}: Duplicate value: "{device["name"]}"')
        names.add(device["name"])


def _admit_device(obj: Wire, where: str, device: Wire) -> None:
    name = device["name"]
    if not _LABEL.fullmatch(name):
        raise _invalid(obj, f'{where}.name: Invalid value: "{name}": {_lowercase("label")}')
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > _ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES}"
        raise _invalid(obj, f"{where}: Invalid value: {count}: {why}")
    for key, value in attributes.items():
        _check_attribute(obj, f"{where}.attributes", key, value)
    for quantity in capacity.values():
        quantity["value"] = canonical(quantity["value"])
    taints = device.get("taints") or []
    _refuse_too_many(obj, f"{where}.taints", len(taints), _TAINTS)
    for index, taint in enumerate(taints):
        _admit_taint(obj, f"{where}.taints[{index}]", taint)


def _admit_taint(obj: Wire, where: str, taint: Wire) -> None:
    effect = taint.get("effect")
    if effect not in _EFFECTS:
        supported = ", ".join(f'"{one}"' for one in _EFFECTS)
        why = f'Unsupported value: "{effect}": supported values: {supported}'
        raise _invalid(obj, f"{where}.effect: {why}")
    taint.setdefault("timeAdded", now())


def _check_attribute(obj: Wire, where: str, key: str, value: Wire) -> None:
    if not _IDENTIFIER.fullmatch(key):
        raise _invalid(obj, f'{where}: Invalid value: "{key}": a valid C identifier must start')
    if len(value) != 1:
        raise _invalid(obj, f"{where}[{key}]: Invalid value: exactly one value must be specified")
    ((kind, content),) = value.items()
    if kind in {"string", "version"} and len(content.encode()) > _VALUE_BYTES:
        why = f"Too long: may not be more than {_VALUE_BYTES} bytes"
        raise _invalid(obj, f"{where}[{key}].{kind}: {why}")
    if kind == "version" and not _SEMVER.fullmatch(content):
        why = "must be a string compatible with semver.org spec 2.0.0"
        raise _invalid(obj, f'{where}[{key}].version: Invalid value: "{content}": {why}')


def canonical(quantity: str) -> str:
    """A whole quantity with the largest suffix of its base that needs no fraction."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        why = "quantities must match the regular expression"
        raise ApiRefusal(400, "BadRequest", f"{why} {_QUANTITY.pattern!r}")
    suffix = found[2] or ""
    suffixes, base = (_BINARY, 1024) if suffix.endswith("i") else (_DECIMAL, 1000)
    number, power = int(found[1]), suffixes.index(suffix)
    while number and number % base == 0 and power + 1 < len(suffixes):
        number, power = number // base, power + 1
    return f"{number}{suffixes[power] if number else ''}"


def _refuse_too_many(obj: Wire, where: str, count: int, limit: int) -> None:
    if count > limit:
        raise _invalid(obj, f"{where}: Too many: {count}: must have at most {limit} items")


def _lowercase(what: str) -> str:
    return f"a lowercase RFC 1123 {what} must consist of lower case alphanumeric characters"


def _invalid(obj: Wire, why: str) -> ApiRefusal:
    kind, name = qualified(obj["kind"], obj["apiVersion"]), obj["metadata"]["name"]
    return ApiRefusal(422, "Invalid", f'{kind} "{name}" is invalid: {why}')
