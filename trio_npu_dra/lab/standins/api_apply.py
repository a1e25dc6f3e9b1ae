"""Server-side apply of the stand-in API server: who wrote which label, datum or device's status.

The real one keeps that for every field; the driver applies these maps and lists alone. Conflicts
are not reported: the driver always takes over what it applies.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

Wire = dict[str, Any]
Place = tuple[str, ...]

_DEVICES: Place = ("status", "devices")
_DEVICE_KEYS = ("device", "driver", "pool", "shareID")
_MAPS: tuple[Place, ...] = (
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("data",),
    ("status",),
    _DEVICES,
)


def applied(old: Wire | None, wire: Wire, manager: str) -> Wire:
    """The object after *manager* has applied *wire*."""
    new = copy.deepcopy(old) if old is not None else {**wire, "metadata": dict(wire["metadata"])}
    new, wire = _with_map_of_devices(new), _with_map_of_devices(wire)
    wanted = dict(_entries(wire))
    owners = _owners(old) if old is not None else {}
    before = owners.pop(manager, frozenset())
    others = {place for places in owners.values() for place in places}
    for place in before - wanted.keys() - others:
        _part(new, place[:-1]).pop(place[-1], None)
    for place, value in wanted.items():
        _part(new, place[:-1])[place[-1]] = value
    _set_managed_fields(new, {**owners, manager: frozenset(wanted)})
    if devices := _read(new, _DEVICES):
        new["status"]["devices"] = list(devices.values())
    return new


def disown_changes(old: Wire, new: Wire) -> None:
    """Take what a plain update changed from those who applied it; *new* is changed in place."""
    before, now = (dict(_entries(_with_map_of_devices(one))) for one in (old, new))
    kept = {place for place, value in now.items() if before.get(place) == value}
    if owners := _owners(old):
        _set_managed_fields(new, {manager: places & kept for manager, places in owners.items()})


def _with_map_of_devices(wire: Wire) -> Wire:
    """A copy in which status.devices is a map, by the keys that tell its items apart."""
    devices = _read(wire, _DEVICES)
    if not devices:
        return wire
    keys = [{key: one[key] for key in _DEVICE_KEYS if key in one} for one in devices]
    names = [f"k:{json.dumps(key, separators=(',', ':'))}" for key in keys]
    return {**wire, "status": {**wire["status"], "devices": dict(zip(names, devices, strict=True))}}


def _entries(wire: Wire) -> Iterator[tuple[Place, Any]]:
    for place in _MAPS:
        for key, value in (_read(wire, place) or {}).items():
            if (*place, key) not in _MAPS:
                yield (*place, key), value


def _read(wire: Wire, place: Place) -> Any:
    part: Any = wire
    for step in place:
        part = (part or {}).get(step)
    return part


def _part(wire: Wire, place: Place) -> Wire:
    for step in place:
        wire = wire.setdefault(step, {})
    return wire


def _owners(wire: Wire) -> dict[str, frozenset[Place]]:
    return {
        one["manager"]: frozenset(
            (*place, key.removeprefix("f:"))
            for place in _MAPS
            for key in _read(one["fieldsV1"], tuple(map(_field, place))) or ()
            if (*place, key.removeprefix("f:")) not in _MAPS
        )
        for one in wire["metadata"].get("managedFields", ())
    }


def _field(step: str) -> str:
    return step if step.startswith("k:") else f"f:{step}"


def _set_managed_fields(wire: Wire, owners: Mapping[str, frozenset[Place]]) -> None:
    noted = []
    for manager, places in owners.items():
        fields: Wire = {}
        for place in sorted(places):
            _part(fields, tuple(map(_field, place)))
        if fields:
            noted.append({"manager": manager, "operation": "Apply", "fieldsV1": fields})
    wire["metadata"]["managedFields"] = noted
