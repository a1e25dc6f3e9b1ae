"""Validation and defaulting of the stand-in API server: those that this driver can run into."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from trio_npu_dra.standins.api_status import ApiRefusal

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
_SELECTORS = ("metadata.name", "metadata.namespace", "spec.driver", "spec.nodeName")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_DEVICES = 128
_DEVICES_WITH_TAINTS = 64
_ATTRIBUTES = 32
_TAINTS = 16
_EFFECTS = ("None", "NoSchedule", "NoExecute")


def now() -> str:
    """The time as the API server writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def matches(obj: Wire, selector: str) -> bool:
    """Whether *obj* fits a field selector `a=b,c=d`.

    Raises:
        ApiRefusal: A field cannot be selected by.
    """
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        if path not in _SELECTORS:
            raise ApiRefusal(400, "BadRequest", f"field label not supported: {path}")
        value: Any = obj
        for step in path.split("."):
            value = value.get(step, "") if isinstance(value, dict) else ""
        if value != wanted.removeprefix("="):
            return False
    return True


def refuse_immutable_changes(plural: str, old: Wire, new: Wire) -> None:
    """Keep driver, node and pool name of a slice as they are."""
    if plural != "resourceslices":
        return
    for what, before, after in (
        ("spec.driver", old["spec"].get("driver"), new["spec"].get("driver")),
        ("spec.nodeName", old["spec"].get("nodeName"), new["spec"].get("nodeName")),
        ("spec.pool.name", old["spec"]["pool"]["name"], new["spec"]["pool"]["name"]),
    ):
        if before != after:
            raise _invalid(new, f"{what}: Invalid value: {after!r}: field is immutable")


def admit_slice(obj: Wire, *, keeps_taints: bool) -> None:
    """Validate a slice and write it as it would be stored.

    Raises:
        ApiRefusal: It is invalid.
    """
    name = obj["metadata"]["name"]
    if not _SUBDOMAIN.fullmatch(name):
        raise _invalid(obj, f"metadata.name: Invalid value: {name!r}: an RFC 1123 subdomain")
    spec = obj["spec"]
    if spec["pool"].get("resourceSliceCount", 0) < 1:
        raise _invalid(obj, "spec.pool.resourceSliceCount: must be greater than zero")
    devices = spec.get("devices") or []
    if not devices:
        spec.pop("devices", None)
    names = [device["name"] for device in devices]
    if len(set(names)) != len(names):
        raise _invalid(obj, "spec.devices: Duplicate value")
    for device in devices:
        if not keeps_taints:
            device.pop("taints", None)
        _admit_device(obj, device)
    limit = _DEVICES_WITH_TAINTS if any(d.get("taints") for d in devices) else _DEVICES
    if len(devices) > limit:
        raise _invalid(obj, f"spec.devices: Too many: {len(devices)}: at most {limit} items")


def _admit_device(obj: Wire, device: Wire) -> None:
    name = device["name"]
    if not _LABEL.fullmatch(name):
        raise _invalid(obj, f"spec.devices.name: Invalid value: {name!r}: an RFC 1123 label")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _ATTRIBUTES:
        raise _invalid(obj, f"spec.devices[{name}]: Too many attributes and capacities")
    for key, value in attributes.items():
        _check_attribute(obj, f"spec.devices[{name}].attributes[{key}]", key, value)
    for quantity in capacity.values():
        quantity["value"] = canonical(quantity["value"])
    taints = device.get("taints") or []
    if len(taints) > _TAINTS:
        raise _invalid(obj, f"spec.devices[{name}].taints: Too many")
    for taint in taints:
        if taint.get("effect") not in _EFFECTS:
            raise _invalid(obj, f"spec.devices[{name}].taints.effect: Unsupported value")
        taint.setdefault("timeAdded", now())


def _check_attribute(obj: Wire, where: str, key: str, value: Wire) -> None:
    if not _IDENTIFIER.fullmatch(key):
        raise _invalid(obj, f"{where}: Invalid name")
    if len(value) != 1:
        raise _invalid(obj, f"{where}: Invalid value: exactly one value must be specified")
    ((kind, content),) = value.items()
    if kind in {"string", "version"} and len(str(content).encode()) > 64:
        raise _invalid(obj, f"{where}.{kind}: Too long: may not be more than 64 bytes")
    if kind == "version" and not _SEMVER.fullmatch(content):
        raise _invalid(
            obj,
            f"{where}.version: Invalid value: must be a string compatible with "
            "semver.org spec 2.0.0",
        )


def canonical(quantity: str) -> str:
    """A whole quantity with the largest suffix of its base that needs no fraction."""
    found = _QUANTITY.fullmatch(quantity)
    if found is None:
        raise ApiRefusal(400, "BadRequest", f"quantities must match {_QUANTITY.pattern}")
    suffix = found[2] or ""
    suffixes, base = (_BINARY, 1024) if suffix.endswith("i") else (_DECIMAL, 1000)
    number, power = int(found[1]), suffixes.index(suffix)
    while number and number % base == 0 and power + 1 < len(suffixes):
        number, power = number // base, power + 1
    return f"{number}{suffixes[power] if number else ''}"


def _invalid(obj: Wire, why: str) -> ApiRefusal:
    name = obj["metadata"].get("name", "")
    return ApiRefusal(422, "Invalid", f'{obj.get("kind", "")} "{name}" is invalid: {why}')
