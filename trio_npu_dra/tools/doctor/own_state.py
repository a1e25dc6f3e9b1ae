"""This driver's own sockets, records and CDI files on a node."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import from_json

from trio_npu_dra.agent.claims.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.claims.share_flag import flags_set_by_driver
from trio_npu_dra.agent.holds.entry import Entry, EntryState, host_nodes
from trio_npu_dra.agent.holds.hold import HolderKind, vnpus_of
from trio_npu_dra.agent.holds.ledger import CLAIMS
from trio_npu_dra.agent.holds.snapshot import Records, read_records
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import running_instances
from trio_npu_dra.tools.doctor.chips import Ours
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, listed

_NONE: Final = Records(entries={}, unreadable={})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """What was found.

    Attributes:
        folder: This driver's own.
        is_there: Whether it is; a daemon makes it at its first start.
        instances: The pod UIDs of the daemons that run.
        unusable: Why the folder cannot be used; empty if it can.
        unread: Why something in it is not known; empty if all is.
        records: Who holds what.
        guards: CDI files of claims whose record cannot be read, by UID.
        without_cdi: The claims whose containers have no CDI file.
        without_record: Names of CDI files whose claims have no record.
        torn: Names of CDI files that are no JSON, as a power cut leaves them.
        lost_nodes: Device nodes that CDI files name and the host lacks, by the file.
        ours: What this driver did to chips.
    """

    folder: str
    is_there: bool = True
    instances: tuple[str | None, ...] = ()
    unusable: str = ""
    unread: str = ""
    records: Records = _NONE
    guards: Mapping[str, str] = field(default_factory=dict)
    without_cdi: tuple[str, ...] = ()
    without_record: tuple[str, ...] = ()
    torn: tuple[str, ...] = ()
    lost_nodes: Mapping[str, list[str]] = field(default_factory=dict)
    ours: Ours = field(default_factory=Ours)


# --- looking -------------------------------------------------------------------------------------


def look(places: Places) -> OwnState:
    """Read all of it, as the daemon would."""
    state = places.state
    found = OwnState(folder=str(state))
    if unread := _unreachable(places):
        return replace(found, unread=unread)
    if not os.path.lexists(state):
        return replace(found, is_there=False)
    if unusable := _unusable(state):
        return replace(found, unusable=unusable)
    try:
        found = replace(found, instances=running_instances(state))
        if (state / CLAIMS).exists():
            found = _with_claims(found, places, read_records(state))
    except StorageError as error:
        return replace(found, unread=str(error))
    except ValidationError:
        return replace(found, unread="which share flags this driver has set cannot be read")
    return found


def _unreachable(places: Places) -> str:
    if not os.access(places.plugins, os.R_OK | os.X_OK):
        return f"{places.plugins} is missing, or out of reach"
    is_there = os.path.lexists(places.state)
    if is_there and places.state.lstat().st_uid != os.geteuid():
        return f"{places.state} is another user's"
    return ""


def _unusable(state: Path) -> str:
    if state.is_symlink() or not state.is_dir():
        return f"{state} is not a folder"
    if not os.access(state, os.W_OK | os.X_OK):
        return f"{state} cannot be written"
    if is_full(os.statvfs(state)):
        return f"the disk of {state} is full"
    return ""


def is_full(disk: os.statvfs_result) -> bool:
    """Whether no file can be made there; btrfs has no limit of files and says 0 of all."""
    return not disk.f_bavail or bool(disk.f_files and not disk.f_favail)


def _with_claims(found: OwnState, places: Places, records: Records) -> OwnState:
    cdi = CdiFolder(
        root=places.cdi,
        driver_name=places.driver_name,
        host=places.host,
        libraries=Libraries(path=""),
    )
    files = cdi.scan()
    known = records.entries.keys() | records.unreadable.keys()
    ready = [entry for entry in records.entries.values() if _has_file(entry)]
    paths = (cdi.devices_path, *(cdi.path(uid) for uid in sorted(files.keys() & known)))
    named = [*_named_nodes(paths)]
    return replace(
        found,
        records=records,
        guards={uid: cdi.path(uid).name for uid in records.unreadable if uid in files},
        without_cdi=tuple(str(entry) for entry in ready if not files.get(entry.uid)),
        without_record=tuple(cdi.path(uid).name for uid in sorted(files.keys() - known)),
        torn=tuple(name for name, nodes in named if nodes is None),
        lost_nodes={
            name: lost
            for name, nodes in named
            if (lost := [node for node in nodes or () if _is_missing(places, node)])
        },
        ours=Ours(
            vnpus=vnpus_of(hold for entry in records.entries.values() for hold in entry.holds),
            shared=flags_set_by_driver(places.state),
        ),
    )


def _has_file(entry: Entry) -> bool:
    """Whether it should have a CDI file of its own; the devices of pods share one."""
    return entry.holder.kind is HolderKind.CLAIM and entry.state is EntryState.READY


def _named_nodes(paths: Iterable[Path]) -> Iterator[tuple[str, list[str] | None]]:
    """The names of CDI files, and the host's device nodes in each; None for one that is torn."""
    for path in paths:
        try:
            spec = from_json(storage.read_bytes(path) or b"{}")
        except ValueError:
            yield path.name, None
        else:
            yield path.name, list(dict.fromkeys(host_nodes(spec)))


def _is_missing(places: Places, node: str) -> bool:
    return not places.host.has_node(node.removeprefix("/dev/"))


# --- judging -------------------------------------------------------------------------------------


def judge(found: OwnState) -> Iterator[Finding]:
    """What that means."""
    if found.unusable:
        yield problem(
            f"{found.unusable}: no claim can be prepared",
            "Put that right; the daemon makes the folder anew if it is missing.",
        )
        return
    if found.unread:
        yield not_checked(found.unread, "Run it as root, on the node or in the driver's pod.")
        return
    findings = [*_about_daemon(found), *_about_records(found), *_about_files(found)]
    yield from findings
    if not findings:
        entries = found.records.entries.values()
        holders = listed(dict.fromkeys(entry.holder.titled for entry in entries))
        yield ok(f"the daemon runs; NPUs are held by {holders or 'nobody'}")


def _about_daemon(found: OwnState) -> Iterator[Finding]:
    if not found.instances:
        where = "" if found.is_there else f", and never did: there is no {found.folder}"
        yield warning(
            f"the daemon does not run here{where}",
            "Look at its DaemonSet: is it for this node, and what does its pod say?",
        )
    elif len(found.instances) > 1:
        yield warning(
            f"{len(found.instances)} daemons run here",
            "Nothing is to be done during an update; else remove all but one.",
        )


def _about_records(found: OwnState) -> Iterator[Finding]:
    for uid, why in found.records.unreadable.items():
        yield problem(
            f"the record of claim {uid} was set aside, because it is broken"
            if not why
            else f"the record of claim {uid} cannot be read: {why}",
            "Delete the pods of that claim: its NPUs are kept from others until it is unprepared."
            + (
                f" If it has none, remove the CDI file {found.guards[uid]}."
                if uid in found.guards
                else ""
            ),
        )


def _about_files(found: OwnState) -> Iterator[Finding]:
    for claim in found.without_cdi:
        yield problem(
            f"claim {claim} has no CDI file, or a wrong one: its containers cannot start again",
            "A daemon that runs writes it anew within seconds; if it does not, look at its log.",
        )
    for file in found.without_record:
        yield warning(
            f"the CDI file {file} is of a claim that is not prepared",
            "A daemon that runs removes it; if it does not, look at its log.",
        )
    for file in found.torn:
        yield problem(
            f"the CDI file {file} is not whole: containers cannot start with it",
            "Restart this driver's pod, which writes it anew.",
        )
    for file, nodes in found.lost_nodes.items():
        yield problem(
            f"the CDI file {file} names {', '.join(nodes)}, which the host does not have",
            "Delete the pods that use it, or bring the NPU back: containers cannot start with it.",
        )
