"""Who has which chips, by what was asked and by what the files say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.claims.marking import MARKED
from tests.claims.node import NodeOnDisk
from tests.reliability.disk import State

ASIDE = ".json.aside"

CHIPS = {"npu-0": {0}, "npu-1": {1}, "npu-2": {2}, "npu-3": {3}, "module-1": {2, 3}}
"""All devices, with their chips: two NPUs, and an A3 card whose dies go together or one by one."""


@dataclass(frozen=True)
class Hold:
    """What a claim is to have, or has.

    Attributes:
        devices: Names.
        is_admin: Whether it only looks on.
        is_shared: Whether it is a share of each, which others may have besides.
    """

    devices: frozenset[str]
    is_admin: bool
    is_shared: bool = False

    @property
    def chips(self) -> set[int]:
        """What it holds is compared by these."""
        return {chip for device in self.devices for chip in CHIPS[device]}

    @property
    def has_marks(self) -> bool:
        """Whether files are made for it."""
        return not self.is_admin and min(self.chips) < MARKED

    @property
    def needs_steps(self) -> bool:
        """Whether something is made for it besides."""
        return self.has_marks or self.is_shared

    def excludes(self, other: Hold) -> bool:
        """Whether both cannot be."""
        if self.is_admin or other.is_admin:
            return False
        are_shared = self.is_shared and other.is_shared
        return any(
            CHIPS[one] & CHIPS[two] and not (are_shared and one == two)
            for one in self.devices
            for two in other.devices
        )


def gives_no_chip_twice(holds: Iterable[Hold]) -> None:
    """See that no two exclude each other."""
    for one, other in itertools.combinations(holds, 2):
        assert not one.excludes(other)


def recorded(record: Any) -> Hold:
    """What a record says."""
    given = record["allocation"]
    return Hold(
        frozenset(device["device"] for device in given),
        is_admin=any(device["adminAccess"] for device in given),
        is_shared=any(device["shareId"] for device in given),
    )


def given(path: Path) -> dict[str, list[str]]:
    """What a CDI file hands out: device names, and the nodes of each."""
    try:
        spec = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec.get("devices", [])
    }


def share_of(uid: str) -> str:
    """The share that a claim has of each device that it shares."""
    return f"share-{uid}"


def on_cards(holds: Iterable[Hold]) -> set[int]:
    """The chips of what is held, and the sisters of dies."""
    chips = {chip for hold in holds if not hold.is_admin for chip in hold.chips}
    return chips | (CHIPS["module-1"] if chips & CHIPS["module-1"] else set())


def wanted(uid: str, hold: Hold) -> dict[str, list[str]]:
    """What a claim's CDI file should hand out."""
    share = f"-{share_of(uid)}" if hold.is_shared else ""
    return {
        f"{uid}-{device}{share}": [f"/dev/davinci{chip}" for chip in sorted(CHIPS[device])]
        for device in hold.devices
    }


def marked(holds: Mapping[str, Hold]) -> set[str]:
    """The files that the steps of these claims have made."""
    return {
        f"{uid}.{step}"
        for uid, hold in holds.items()
        if hold.has_marks
        for step in ("make", "flag")
    }


# --- what is on the node -------------------------------------------------------------------------


def recorded_on(node: NodeOnDisk) -> dict[str, Hold]:
    """What each record says, all of which are ready."""
    records = {uid: node.record(uid) for uid in node.record_uids()}
    assert all(record["state"] == "ready" for record in records.values())
    return {uid: recorded(record) for uid, record in records.items()}


def set_aside_on(node: NodeOnDisk) -> set[str]:
    """Claims of which a record was set aside."""
    return {path.name.removesuffix(ASIDE) for path in node.records_folder.glob(f"*{ASIDE}")}


def guarded_on(node: NodeOnDisk, uids: Iterable[str]) -> dict[str, Hold]:
    """What the CDI files of these claims, whose records cannot be read, still hand out."""
    files = {uid: given(node.cdi_path(uid)) for uid in uids if node.cdi_path(uid).exists()}
    return {
        uid: Hold(
            frozenset(
                name.removeprefix(f"{uid}-").removesuffix(f"-{share_of(uid)}") for name in names
            ),
            is_admin=False,
        )
        for uid, names in files.items()
    }


def check_moment(node: NodeOnDisk, files: State, uids: Iterable[str]) -> None:
    """See that at a moment of a call files are whole, and no chip is given out twice.

    Who lets go what he had, of which another claim of the call may have some already, holds
    nothing: his containers cannot start.
    """
    named = {path: content for path, content in files.items() if path.suffix == ".json"}
    records = {
        path.stem: json.loads(content)
        for path, content in named.items()
        if path.parent == node.records_folder
    }
    gives_no_chip_twice(
        recorded(record) for record in records.values() if record["state"] != "undoing"
    )
    aside = {path.name.removesuffix(ASIDE) for path in files if path.name.endswith(ASIDE)}
    for uid in uids:
        content = named.get(node.cdi_path(uid))
        assert content is None or uid in aside or (uid in records and json.loads(content))
