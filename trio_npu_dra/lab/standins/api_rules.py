"""Validation and defaulting of the stand-in API server, as far as this driver can run into them.

Fields and messages are those of the real API server: the conformance scenarios check both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from trio_npu_dra.lab.standins.api_status import ApiRefusal, invalid

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
    "configmaps": ("metadata.name", "metadata.namespace"),
    "nodes": ("metadata.name",),
    "pods": ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"),
    "resourceclaims": ("metadata.name", "metadata.namespace"),
    "resourceslices": ("metadata.name", "spec.driver", "spec.nodeName"),
}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_DEVICES = 128
_DEVICES_WITH_FEATURES = 64
_ATTRIBUTES = 32
_VALUE_BYTES = 64
_COUNTER_SETS = 8
_COUNTERS = 32
_CONSUMPTIONS = 2
_EFFECTS = ("NoExecute", "NoSchedule", "None")
_EFFECTS_OF_34 = _EFFECTS[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """Which Kubernetes the stand-in stands for, as far as slices differ.

    Read in pkg/apis/resource/validation and pkg/registry/resource/resourceslice of 1.34.3 and
    1.36.3.

    Attributes:
        minor: Of its version. 1.34 refuses the taint effect `None`, takes 4 taints a device, and
            wants counter sets in the slice of the devices that consume from them, and says in other
            words where something is wrong; from 1.35 on a slice has counter sets or devices.
        taints: Feature gate DRADeviceTaints, on by default from 1.36.
        counters: Feature gate DRAPartitionableDevices, on by default from 1.36.
        shares: Feature gate DRAConsumableCapacity, on by default from 1.36.
    """

    minor: int = 36
    taints: bool = True
    counters: bool = True
    shares: bool = True

    @property
    def effects(self) -> tuple[str, ...]:
        """The effects of taints that it knows."""
        return _EFFECTS if self.minor >= 35 else _EFFECTS_OF_34

    @property
    def taint_limit(self) -> int:
        """Taints of a device."""
        return 16 if self.minor >= 35 else 4

    def place_of_key(self, where: str, key: str) -> str:
        """What a refusal names for a wrong key of the map at *where*."""
        return where if self.minor >= 35 else f"{where}[{key}]"


def now() -> str:
    """The time as the API server writes it, in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Terms = tuple[tuple[tuple[str, ...], str], ...]
"""Fields, step by step, and their wanted values."""


def terms(plural: str, fields: str, labels: str, namespace: str) -> Terms:
    """Selectors `a=b,c=d` of fields and of labels, and a namespace, which may be empty, as terms.

    Raises:
        ApiRefusal: A field cannot be used in a selector.
    """
    pairs = list(_pairs(fields))
    for field, _ in pairs:
        if field not in _SELECTABLE[plural]:
            raise ApiRefusal(400, "BadRequest", f"field label not supported: {field}")
    return (
        *((tuple(field.split(".")), value) for field, value in pairs),
        *((("metadata", "labels", label), value) for label, value in _pairs(labels)),
        *([(("metadata", "namespace"), namespace)] if namespace else []),
    )


def _pairs(selector: str) -> Iterator[tuple[str, str]]:
    for term in filter(None, selector.split(",")):
        name, _, value = term.partition("=")
        yield name, value


def matches(obj: Wire, wanted: Terms) -> bool:
    """Whether *obj* has all the values."""
    return all(_value(obj, steps) == value for steps, value in wanted)


def _value(obj: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        obj = obj.get(step, "") if obj else ""
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
            raise invalid(new, f'{field}: Invalid value: "{after}": field is immutable')


def admit_slice(obj: Wire, old: Wire | None = None, *, kubernetes: Kubernetes) -> None:
    """Validate a slice and change it to the form that is stored.

    Args:
        obj: What was sent; changed in place.
        old: What is stored of it; None when it is created.
        kubernetes: Whose rules hold.

    Raises:
        ApiRefusal: It is invalid.
    """
    name = obj["metadata"]["name"]
    if not _SUBDOMAIN.fullmatch(name):
        raise invalid(obj, f'metadata.name: Invalid value: "{name}": {_lowercase("subdomain")}')
    spec = obj["spec"]
    count = spec["pool"].get("resourceSliceCount", 0)
    if count < 1:
        why = f"Invalid value: {count}: must be greater than zero"
        raise invalid(obj, f"spec.pool.resourceSliceCount: {why}")
    _drop_disabled(spec, old["spec"] if old else {}, kubernetes)
    if kubernetes.minor >= 35 and "sharedCounters" in spec and "devices" in spec:
        why = "only one of `sharedCounters` or `devices` is allowed"
        raise invalid(obj, f'spec: Invalid value: "": {why}')
    for field in ("devices", "sharedCounters"):
        if not spec.get(field):
            spec.pop(field, None)
    _admit_devices(obj, spec.get("devices", []), kubernetes)
    _admit_counter_sets(obj, spec.get("sharedCounters", []), kubernetes)


def _drop_disabled(spec: Wire, old: Wire, kubernetes: Kubernetes) -> None:
    """Drop the fields of features that are off, unless the stored slice uses the feature."""
    if not (kubernetes.taints or _uses(old, "taints")):
        for device in spec.get("devices") or ():
            device.pop("taints", None)
    if not (kubernetes.counters or old.get("sharedCounters") or _uses(old, "consumesCounters")):
        spec.pop("sharedCounters", None)
        for device in spec.get("devices") or ():
            device.pop("consumesCounters", None)
    if not (kubernetes.shares or _uses(old, "allowMultipleAllocations")):
        for device in spec.get("devices") or ():
            device.pop("allowMultipleAllocations", None)
            for capacity in (device.get("capacity") or {}).values():
                capacity.pop("requestPolicy", None)


def _uses(spec: Wire, field: str) -> bool:
    return any(device.get(field) for device in spec.get("devices") or ())


def _admit_devices(obj: Wire, devices: list[Wire], kubernetes: Kubernetes) -> None:
    spec = obj["spec"]
    has_features = _uses(spec, "taints") or _uses(spec, "consumesCounters")
    limit = _DEVICES_WITH_FEATURES if has_features and kubernetes.minor >= 35 else _DEVICES
    _refuse_too_many(obj, "spec.devices", len(devices), limit)
    for index, device in enumerate(devices):
        _admit_device(obj, f"spec.devices[{index}]", device, kubernetes)
    _refuse_repeated(obj, "spec.devices", devices, "name", kubernetes)


def _admit_device(obj: Wire, where: str, device: Wire, kubernetes: Kubernetes) -> None:
    _check_label(obj, f"{where}.name", device["name"])
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    count = len(attributes) + len(capacity)
    if count > _ATTRIBUTES:
        why = f"the total number of attributes and capacities must not exceed {_ATTRIBUTES}"
        raise invalid(obj, f"{where}: Invalid value: {count}: {why}")
    for key, value in attributes.items():
        _check_attribute(obj, f"{where}.attributes", key, value, kubernetes)
    for key, part in capacity.items():
        part["value"] = canonical(part["value"])
        if policy := part.get("requestPolicy"):
            place = f"{where}.capacity[{key}].requestPolicy"
            if not device.get("allowMultipleAllocations"):
                why = "Forbidden: allowMultipleAllocations must be true"
                raise invalid(obj, f"{place}: {why}")
            _admit_policy(obj, place, policy, part["value"])
    taints = device.get("taints") or []
    _refuse_too_many(obj, f"{where}.taints", len(taints), kubernetes.taint_limit)
    for index, taint in enumerate(taints):
        _admit_taint(obj, f"{where}.taints[{index}]", taint, kubernetes.effects)
    _admit_consumption(obj, f"{where}.consumesCounters", device, kubernetes)


def _admit_policy(obj: Wire, where: str, policy: Wire, most: str) -> None:
    """What one allocation may take of a capacity; the driver writes no fixed values."""
    policy["default"] = canonical(policy["default"])
    valid = policy.get("validRange")
    if valid is None:
        return
    valid |= {key: canonical(quantity) for key, quantity in valid.items()}
    least, default = _amount(valid["min"]), _amount(policy["default"])
    if default < least:
        why = f'Invalid value: "{policy["default"]}": default is less than min: {valid["min"]}'
        raise invalid(obj, f"{where}.validRange.min: {why}")
    if "step" not in valid:
        return
    step, place = _amount(valid["step"]), f"{where}.validRange.step"
    if least + step > _amount(most):
        why = f'Invalid value: "{valid["step"]}": one step {least + step} is larger than'
        raise invalid(obj, f"{place}: {why} capacity value: {most}")
    if (default - least) % step:
        why = f'Invalid value: "{policy["default"]}": value is not a multiple of a given step'
        raise invalid(obj, f"{place}: {why} ({valid['step']}) from ({valid['min']})")


def _admit_taint(obj: Wire, where: str, taint: Wire, effects: tuple[str, ...]) -> None:
    effect = taint.get("effect")
    if effect not in effects:
        supported = ", ".join(f'"{known}"' for known in effects)
        why = f'Unsupported value: "{effect}": supported values: {supported}'
        raise invalid(obj, f"{where}.effect: {why}")
    taint.setdefault("timeAdded", now())


def _admit_consumption(obj: Wire, where: str, device: Wire, kubernetes: Kubernetes) -> None:
    consumed = device.get("consumesCounters") or []
    if kubernetes.minor >= 35:
        _refuse_too_many(obj, where, len(consumed), _CONSUMPTIONS)
    for index, part in enumerate(consumed):
        _check_label(obj, f"{where}[{index}].counterSet", part["counterSet"])
        _admit_counters(obj, f"{where}[{index}].counters", part, kubernetes)
        if kubernetes.minor < 35:
            _refuse_unknown_counters(obj, f"{where}[{index}]", part)
    _refuse_repeated(obj, where, consumed, "counterSet", kubernetes)


def _refuse_unknown_counters(obj: Wire, where: str, part: Wire) -> None:
    """1.34 looks for the counters in the slice of the device; later versions do not look."""
    known = {item["name"]: item["counters"] for item in obj["spec"].get("sharedCounters") or ()}
    name, must = part["counterSet"], "must reference a"
    if name not in known:
        why = f"{must} counterSet defined in the ResourceSlice sharedCounters"
        raise invalid(obj, f'{where}.counterSet: Invalid value: "{name}": {why}')
    for counter in part["counters"].keys() - known[name].keys():
        why = f"{must} counter defined in the ResourceSlice sharedCounters"
        raise invalid(obj, f'{where}.counters: Invalid value: "{counter}": {why}')


def _admit_counter_sets(obj: Wire, sets: list[Wire], kubernetes: Kubernetes) -> None:
    where = "spec.sharedCounters"
    if kubernetes.minor >= 35:
        _refuse_too_many(obj, where, len(sets), _COUNTER_SETS)
    elif (count := sum(len(part["counters"]) for part in sets)) > _COUNTERS:
        why = f"the total number of shared counters must not exceed {_COUNTERS}"
        raise invalid(obj, f"{where}: Invalid value: {count}: {why}")
    for index, part in enumerate(sets):
        _check_label(obj, f"{where}[{index}].name", part["name"])
        _admit_counters(obj, f"{where}[{index}].counters", part, kubernetes)
    _refuse_repeated(obj, where, sets, "name", kubernetes)


def _admit_counters(obj: Wire, where: str, part: Wire, kubernetes: Kubernetes) -> None:
    counters = part.get("counters")
    if not counters:
        raise invalid(obj, f"{where}: Required value")
    _refuse_too_many(obj, where, len(counters), _COUNTERS)
    for key, counter in counters.items():
        _check_label(obj, kubernetes.place_of_key(where, key), key)
        counter["value"] = canonical(counter["value"])


def _check_attribute(obj: Wire, where: str, key: str, value: Wire, kubernetes: Kubernetes) -> None:
    if not _IDENTIFIER.fullmatch(key):
        place, why = kubernetes.place_of_key(where, key), "a valid C identifier must start"
        raise invalid(obj, f'{place}: Invalid value: "{key}": {why}')
    if len(value) != 1:
        problem = "Required" if not value and kubernetes.minor < 35 else "Invalid"
        raise invalid(obj, f"{where}[{key}]: {problem} value: exactly one value must be specified")
    ((kind, content),) = value.items()
    if kind in {"string", "version"} and len(content.encode()) > _VALUE_BYTES:
        why = f"Too long: may not be more than {_VALUE_BYTES} bytes"
        raise invalid(obj, f"{where}[{key}].{kind}: {why}")
    if kind == "version" and not _SEMVER.fullmatch(content):
        why = "must be a string compatible with semver.org spec 2.0.0"
        raise invalid(obj, f'{where}[{key}].version: Invalid value: "{content}": {why}')


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


def _amount(quantity: str) -> int:
    """A canonical quantity as a number."""
    found = _QUANTITY.fullmatch(quantity)
    assert found is not None, "it is canonical"
    suffix = found[2] or ""
    suffixes, base = (_BINARY, 1024) if suffix.endswith("i") else (_DECIMAL, 1000)
    return int(found[1]) * int(base ** suffixes.index(suffix))


def _check_label(obj: Wire, where: str, name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise invalid(obj, f'{where}: Invalid value: "{name}": {_lowercase("label")}')


def _refuse_repeated(
    obj: Wire, where: str, parts: list[Wire], key: str, kubernetes: Kubernetes
) -> None:
    names = [part[key] for part in parts]
    field = "" if kubernetes.minor >= 35 else f".{key}"
    for index, name in enumerate(names):
        if name in names[:index]:
            raise invalid(obj, f'{where}[{index}]{field}: Duplicate value: "{name}"')


def _refuse_too_many(obj: Wire, where: str, count: int, limit: int) -> None:
    if count > limit:
        raise invalid(obj, f"{where}: Too many: {count}: must have at most {limit} items")


def _lowercase(what: str) -> str:
    return f"a lowercase RFC 1123 {what} must consist of lower case alphanumeric characters"
