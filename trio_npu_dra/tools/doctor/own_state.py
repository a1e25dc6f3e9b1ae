"""This driver's own sockets, records and CDI files on a node."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from pydantic_core import from_json

from trio_npu_dra.agent.handout.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.handout.share_flag import flags_set_by_driver
from trio_npu_dra.agent.holds.entry import Entry, EntryState, host_nodes
from trio_npu_dra.agent.holds.files import CLAIMS, Found, read_records
from trio_npu_dra.agent.holds.hold import HolderKind, vnpus_of
from trio_npu_dra.kit.base import storage
from trio_npu_dra.kit.base.device_metadata import metadata_files
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import running_instances
from trio_npu_dra.tools.doctor.chips import Ours
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import OUT_OF_REACH, Places, inside, listed, not_read

_LOOK_AT_LOG: Final = "if it does not, look at its log."


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnState:
    """What this driver keeps on the node.

    Attributes:
        findings: What is wrong with it, or that all is well.
        instances: The pod UIDs of the daemons that run.
        records: The entries of holders.
        ours: What this driver did to chips.
    """

    findings: tuple[Finding, ...] = ()
    instances: tuple[str | None, ...] = ()
    records: Found = field(default_factory=Found)
    ours: Ours = field(default_factory=Ours)


def look(places: Places) -> OwnState:
    """Read all of it, as the daemon would."""
    state = places.state
    if unseen := _unseen(places):
        return OwnState(findings=(unseen,))
    if os.path.lexists(state) and (unusable := _unusable(state)):
        found = problem(
            f"{unusable}: no claim can be prepared",
            "Put that right; the daemon creates the folder if it is missing.",
        )
        return OwnState(findings=(found,))
    instances: tuple[str | None, ...] = ()
    try:
        instances = running_instances(state) if os.path.lexists(state) else ()
        daemon = [*_about_daemon(state, instances)]
        if not os.path.lexists(state / CLAIMS):
            return OwnState(
                findings=(*daemon, *_all_is_well(daemon, ())),
                instances=instances,
                ours=Ours(nodes=frozenset()),
            )
        records = read_records(state)
        entries = records.entries.values()
        cdi = CdiFolder(
            root=places.cdi,
            driver_name=places.driver_name,
            host=places.host,
            libraries=Libraries(path=""),
            metadata=metadata_files(state, places.driver_name),
        )
        files = cdi.scan()
        findings = [
            *daemon,
            *_about_records(records, {uid: cdi.path(uid).name for uid in files}),
            *_about_files(places, cdi, files, records),
        ]
        ours = Ours(
            nodes=None
            if records.unreadable
            else {node for entry in entries for hold in entry.holds for node in hold.nodes},
            vnpus=vnpus_of(hold for entry in entries for hold in entry.holds),
            shared=flags_set_by_driver(state),
        )
    except StorageError as error:
        return OwnState(findings=(not_read(error),), instances=instances)
    except ValidationError:
        unread = not_checked("which share flags this driver has set cannot be read")
        return OwnState(findings=(unread,), instances=instances)
    return OwnState(
        findings=(*findings, *_all_is_well(findings, entries)),
        instances=instances,
        records=records,
        ours=ours,
    )


def _all_is_well(findings: Sequence[Finding], entries: Iterable[Entry]) -> Iterator[Finding]:
    if not findings:
        holders = listed(dict.fromkeys(entry.holder.titled for entry in entries))
        yield ok(f"the daemon runs; NPUs are held by {holders or 'nobody'}")


def _unseen(places: Places) -> Finding | None:
    """That our folder, or the kubelet's around it, cannot be looked into; None if it can."""
    try:
        inside(places.plugins)
    except StorageError as error:
        return not_read(error)
    if os.path.lexists(places.state) and places.state.lstat().st_uid != os.geteuid():
        return not_checked(f"{places.state} is another user's", OUT_OF_REACH)
    return None


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


def _about_daemon(state: Path, instances: Collection[str | None]) -> Iterator[Finding]:
    if not instances:
        where = "" if os.path.lexists(state) else f", and never did: there is no {state}"
        yield warning(
            f"the daemon does not run here{where}",
            "Look at its DaemonSet: is it for this node, and what does its pod say?",
        )
    elif len(instances) > 1:
        yield warning(
            f"{len(instances)} daemons run here",
            "Nothing is to be done during an update; else remove all but one.",
        )


def _about_records(records: Found, files: Mapping[str, str]) -> Iterator[Finding]:
    """Records that cannot be read; *files* has names of CDI files by UID."""
    for uid, why in records.unreadable.items():
        guard = f" If it has none, remove the CDI file {files[uid]}." if uid in files else ""
        yield problem(
            f"the record of claim {uid} cannot be read and is set aside: {why}",
            "Delete the pods of that claim: its NPUs are kept from others until it is unprepared."
            + guard,
        )


def _about_files(
    places: Places, cdi: CdiFolder, files: Mapping[str, bool], records: Found
) -> Iterator[Finding]:
    for entry in filter(_has_file, records.entries.values()):
        if not files.get(entry.uid):
            yield problem(
                f"claim {entry} has no CDI file, or a wrong one: its containers cannot start again",
                f"A running daemon writes it again within seconds; {_LOOK_AT_LOG}",
            )
    known = records.entries.keys() | records.unreadable.keys()
    for uid in sorted(files.keys() - known):
        yield warning(
            f"the CDI file {cdi.path(uid).name} is of a claim that is not prepared",
            f"A running daemon removes it; {_LOOK_AT_LOG}",
        )
    paths = (cdi.devices_path, *(cdi.path(uid) for uid in sorted(files.keys() & known)))
    named = [*_named_nodes(paths)]
    for file, nodes in named:
        if nodes is None:
            yield problem(
                f"the CDI file {file} is not whole: containers cannot start with it",
                "Restart this driver's pod, which writes it again.",
            )
    for file, nodes in named:
        has = places.host.has_node
        if lost := [node for node in nodes or () if not has(node.removeprefix("/dev/"))]:
            yield problem(
                f"the CDI file {file} names {', '.join(lost)}, which the host does not have",
                "Delete the pods that use it, or bring the NPU back: containers cannot start with "
                "it.",
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
