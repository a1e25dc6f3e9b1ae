"""Who has which chips, by what was asked and by what the files say."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.claims.node import NodeOnDisk
from tests.reliability.disk import State
from tests.reliability.wishes import CHIPS, MODULE, Way, Wish, share_of

BROKEN = b"{"
"""What a broken record has; nothing, if it was lost after that."""


def gives_no_chip_twice(holds: Iterable[Wish]) -> None:
    """See that no two exclude each other."""
    for one, other in itertools.combinations(holds, 2):
        assert not one.excludes(other)


def recorded(record: Any) -> Wish:
    """What a record says."""
    given = record["allocation"]
    ways = {"adminAccess": Way.LOOKS_ON, "shareId": Way.BY_SHARES, "config": Way.BY_CONFIG}
    found = [way for field, way in ways.items() if any(device.get(field) for device in given)]
    return Wish(frozenset(device["device"] for device in given), *found)


def given(path: Path) -> dict[str, list[str]]:
    """What a CDI file hands out: device names, and the nodes of each."""
    try:
        spec = json.loads(path.read_bytes())
    except ValueError:
        return {}
    return {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec.get("devices", [])
        if "deviceNodes" in device["containerEdits"]  # without them it brings metadata
    }


def on_cards(holds: Iterable[Wish]) -> set[int]:
    """The chips of what is held, and the sisters of dies."""
    chips = {chip for hold in holds if not hold.is_admin for chip in hold.chips}
    return chips | (CHIPS[MODULE] if chips & CHIPS[MODULE] else set())


def wanted(uid: str, hold: Wish) -> dict[str, list[str]]:
    """What a claim's CDI file should hand out."""
    share = f"-{share_of(uid)}" if hold.is_shared else ""
    return {
        f"{uid}-{device}{share}": [f"/dev/davinci{chip}" for chip in sorted(CHIPS[device])]
        for device in hold.devices
    }


def marked(holds: Mapping[str, Wish]) -> set[str]:
    """The files that the steps of these claims have made."""
    return {
        f"{uid}.{step}"
        for uid, hold in holds.items()
        if hold.has_marks
        for step in ("make", "flag")
    }


# --- what is on the node -------------------------------------------------------------------------


def recorded_on(node: NodeOnDisk) -> dict[str, Wish]:
    """What each record says, all of which are ready."""
    uids = node.record_uids() - set_aside_on(node)
    records = {uid: node.record(uid) for uid in uids}
    assert all(record["state"] == "ready" for record in records.values())
    return {uid: recorded(record) for uid, record in records.items()}


def set_aside_on(node: NodeOnDisk) -> set[str]:
    """Claims whose record is broken."""
    paths = node.records_folder.glob("*.json")
    return {path.stem for path in paths if path.read_bytes() in {BROKEN, b""}}


def guarded_on(node: NodeOnDisk, uids: Iterable[str]) -> dict[str, Wish]:
    """What the CDI files of these claims, whose records cannot be read, still hand out."""
    files = {uid: given(node.cdi_path(uid)) for uid in uids if node.cdi_path(uid).exists()}
    return {
        uid: Wish(
            frozenset(
                name.removeprefix(f"{uid}-").removesuffix(f"-{share_of(uid)}") for name in names
            )
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
        if path.parent == node.records_folder and content not in {BROKEN, b""}
    }
    gives_no_chip_twice(
        recorded(record) for record in records.values() if record["state"] != "undoing"
    )
    aside = {path.stem for path, content in files.items() if content in {BROKEN, b""}}
    for uid in uids:
        content = named.get(node.cdi_path(uid))
        assert content is None or uid in aside or (uid in records and json.loads(content))
