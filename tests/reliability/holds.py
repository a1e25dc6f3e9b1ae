"""Who has which device, by what was asked and by what the files say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Hold:
    """What a claim is to have, or has.

    Attributes:
        devices: Names.
        is_admin: Whether it only looks on.
    """

    devices: frozenset[str]
    is_admin: bool

    def excludes(self, other: Hold) -> bool:
        """Whether both cannot be."""
        return not (self.is_admin or other.is_admin) and bool(self.devices & other.devices)


def gives_no_device_twice(holds: Iterable[Hold]) -> None:
    """See that no two exclude each other."""
    for one, other in itertools.combinations(holds, 2):
        assert not one.excludes(other)


def recorded(record: Any) -> Hold:
    """What a record says."""
    devices = record["devices"]
    return Hold(
        frozenset(device["device"] for device in devices),
        is_admin=any(device["adminAccess"] for device in devices),
    )


def given(path: Path) -> dict[str, str]:
    """What a CDI file hands out: device names, and each one's node."""
    try:
        spec = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return {
        device["name"]: device["containerEdits"]["deviceNodes"][0]["path"]
        for device in spec.get("devices", [])
    }
