"""The NPUs of a node: answers of the Ascend driver, processes on NPUs, divided NPUs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

import trio

from trio_npu_dra.ascend.ascend_driver import load_library
from trio_npu_dra.ascend.container import require
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, LibraryMissing
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker, open_worker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.root_info import ROOT_INFO, read_root_info
from trio_npu_dra.ascend.single_look import read_board
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import HostFileMissing, StorageError
from trio_npu_dra.tools.doctor import addresses
from trio_npu_dra.tools.doctor.addresses import Addresses
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, inside, listed, not_read
from trio_npu_dra.tools.doctor.programs import cgroup, command

_PATIENCE_SECONDS: Final = 60.0
_IN_POD: Final = re.compile(r"kubepods|/pod[0-9a-f]{8}[-_]")
"""Cgroups of pods, with systemd or without, and also as seen from within a cgroup namespace."""


@dataclass(frozen=True, slots=True)
class ChipUser:
    """A process on an NPU.

    Attributes:
        chip: The NPU's name.
        pid: The process's id on the host; 0 if the Ascend driver does not say.
        command: The name of its program.
        cgroup: Its cgroups; empty if the process is not seen.
    """

    chip: str
    pid: int
    command: str = ""
    cgroup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chips:
    """What was found.

    Attributes:
        has_hardware: Whether the node has Ascend hardware.
        failure: Why the Ascend driver does not answer; empty if it does.
        unseen: Why we do not know whether there is hardware; None if we know.
        board: What it says.
        missing: Why containers cannot have what they need.
        unfit: Paths of the wrong kind.
        addresses: What is known of those of RoCE ports.
        root_info: Why HCCL cannot use the root info (`problem_of_root_info`).
        users: The processes on the NPUs.
        unread: Why the processes of NPUs are not known.
    """

    has_hardware: bool
    failure: str = ""
    unseen: StorageError | None = None
    board: Board = EMPTY_BOARD
    missing: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()
    addresses: Addresses = field(default_factory=Addresses)
    root_info: str | None = None
    users: tuple[ChipUser, ...] = ()
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What this driver did to chips by itself.

    Attributes:
        nodes: The host's device nodes of the chips that it gave to a claim or a pod; None if that
            is not known.
        vnpus: The ids of the vNPUs that it cut.
        shared: The keys of the chips whose share flag it has set.
    """

    nodes: AbstractSet[str] | None = None
    vnpus: AbstractSet[int] = field(default_factory=frozenset)
    shared: AbstractSet[str] = field(default_factory=frozenset)


# --- looking -------------------------------------------------------------------------------------


async def look(places: Places) -> Chips:
    """Ask the Ascend driver."""
    host = places.host
    has_hardware = host.is_ascend_present()
    try:
        dcmi = load_library(host)
    except LibraryMissing as error:
        return Chips(has_hardware=has_hardware, failure=str(error))
    if dcmi is None:
        return Chips(has_hardware=has_hardware, unseen=_unseen(host))
    with trio.move_on_after(_PATIENCE_SECONDS):
        async with open_worker() as worker:
            return await _ask(worker, dcmi, places, Chips(has_hardware=has_hardware))
    return Chips(
        has_hardware=has_hardware,
        failure=f"{dcmi.library_path} has not answered for {_PATIENCE_SECONDS:.0f} s",
    )


def _unseen(host: Host) -> StorageError | None:
    try:
        inside(host.dev_root)
    except StorageError as error:
        return None if isinstance(error.__cause__, FileNotFoundError) else error
    return None


async def _ask(worker: DcmiWorker, dcmi: Dcmi, places: Places, found: Chips) -> Chips:
    try:
        board = await read_board(worker, dcmi, places.host, NodeFaults(None))
    except DcmiError as error:
        return replace(found, failure=str(error))
    users: list[ChipUser] = []
    unread: list[str] = []
    for chip in board.chips:
        try:
            pids = await worker.call(dcmi.processes, chip.ref, device=chip.ref)
        except DcmiError as error:
            unread.append(f"{chip.name}: {error}")
        else:
            for pid in pids:
                place = places.processes / str(pid)
                user = ChipUser(chip.name, pid, command=command(place), cgroup=cgroup(place))
                users.append(user)
    return replace(
        found,
        board=board,
        missing=tuple(_missing(places.host, board)),
        unfit=tuple(_unfit(places.host, board)),
        addresses=await addresses.look(worker, dcmi, places.host, board),
        root_info=problem_of_root_info(places.host, board),
        users=tuple(users),
        unread=tuple(unread),
    )


def _missing(host: Host, board: Board) -> Iterator[str]:
    needs = {one_of: None for chip in board.chips for one_of in TRAITS[chip.family].needs}
    own = ((f"/dev/davinci{chip.physical_id}",) for chip in board.chips if not chip.vnpus)
    for one_of in (*needs, *own):
        try:
            require(host, one_of)
        except HostFileMissing as error:
            yield str(error)


def _unfit(host: Host, board: Board) -> list[str]:
    for chip in board.chips:
        host.existing(*TRAITS[chip.family].driver_paths)
    return sorted(host.unfit)


def problem_of_root_info(host: Host, board: Board) -> str | None:
    """Why HCCL cannot use the root info for all NPUs; empty if it can.

    None if there is none, or no NPU of which HCCL reads it.
    """
    readers = [chip.physical_id for chip in board.chips if TRAITS[chip.family].reads_root_info]
    found = read_root_info(host) if readers else None
    return found.problem_for(readers) if found is not None else None


# --- judging -------------------------------------------------------------------------------------


def judge_driver(found: Chips) -> Iterator[Finding]:
    """Whether the Ascend driver is there and answers."""
    if found.failure:
        yield problem(
            found.failure,
            "Install or repair the Ascend driver of this node; npu-smi info must work on the host.",
        )
        return
    board = found.board
    if found.unseen is not None:
        yield not_read(found.unseen)
        return
    if not board.chips and not found.has_hardware:
        yield ok("this node has neither Ascend NPUs nor an Ascend driver")
        return
    bad = [*found.missing, *found.unfit, *board.gaps]
    for missing in found.missing:
        yield problem(missing, "Install the Ascend driver and load its kernel modules.")
    for path in found.unfit:
        yield warning(
            f"{path} is of the wrong kind: containers do not get it",
            "Remove it, and install the Ascend driver again if a file or folder belongs there.",
        )
    for gap in board.gaps:
        yield problem(gap, "Look at it with npu-smi info; a chip that boots is there in a minute.")
    if not board.chips and not bad:
        yield problem(
            "the Ascend driver answers and lists no NPU that this driver knows",
            "Look at npu-smi info, and at the kernel's log.",
        )
    elif not bad:
        chips = {chip.chip_name: None for chip in board.chips}
        version = board.driver_version or "of an unknown version"
        yield ok(f"{version}, {len(board.chips)} NPUs ({', '.join(chips)})")


def judge_use(found: Chips, ours: Ours) -> Iterator[Finding]:
    """Whether processes use NPUs outside of pods, or in pods that nobody gave the NPU."""
    if found.failure or not found.board.chips:
        return
    outside = [user for user in found.users if user.cgroup and not _IN_POD.search(user.cgroup)]
    for user in outside:
        yield problem(
            f"{user.chip} is used outside of Kubernetes, by process {user.pid} ({user.command})",
            "End that process or its container: a pod that gets this NPU cannot open it meanwhile.",
        )
    held = {
        chip.name
        for chip in found.board.chips
        if ours.nodes is None or chip.device_node in ours.nodes
    }
    in_pods = [user for user in found.users if _IN_POD.search(user.cgroup)]
    astray = [user for user in in_pods if user.chip not in held]
    if astray:
        yield problem(
            f"{listed(_by_process(astray))}: used by a pod's process, and held by no claim or pod",
            "If that pod is gone, end the process; only a restart of the node, or a reset of the "
            "NPU, ends one in state D. If another device plugin gave the NPU, see there.",
        )
    unseen = [user for user in found.users if not user.cgroup]
    if unseen:
        yield not_checked(
            f"the users of {listed(_by_process(unseen))} cannot be seen from here",
            "Run it on the node itself.",
        )
    for why in found.unread:
        yield not_checked(f"processes on {why}")
    if not outside and not astray and not unseen and not found.unread:
        pods = dict.fromkeys(user.chip for user in found.users)
        yield ok(f"by pods alone: {listed(pods)}" if pods else "none is in use")


def judge_root_info(found: Chips) -> Iterator[Finding]:
    """Whether HCCL can use the root info of a node that has one."""
    if found.root_info:
        yield warning(
            f"{ROOT_INFO} does not fit the NPUs of this node: {found.root_info}. Containers of "
            "NPUs that it does not fit do not get it",
            "Remove it, or have Huawei's tools write it again.",
        )
    elif found.root_info is not None:
        yield ok(f"{ROOT_INFO} fits all NPUs")


def _by_process(users: Iterable[ChipUser]) -> Iterator[str]:
    """NPUs with the processes on them; in a container the Ascend driver tells no number but 0."""
    pids: dict[str, list[str]] = {}
    for user in users:
        pids.setdefault(user.chip, []).extend([str(user.pid)] if user.pid else [])
    for chip, found in pids.items():
        yield f"{chip} (process {', '.join(found)})" if found else chip


def judge_division(found: Chips, ours: Ours) -> Iterator[Finding]:
    """Whether NPUs were split or shared manually."""
    board = found.board
    if found.failure or not board.chips:
        return
    findings = []
    for chip in board.chips:
        if by_hand := [vnpu for vnpu in chip.vnpus if vnpu not in ours.vnpus]:
            findings.append(
                warning(
                    f"{chip.name} was cut into vNPUs by hand ({', '.join(map(str, by_hand))}): it "
                    "is offered in these partitions, not as a whole",
                    "If that is not wanted, destroy them with npu-smi set -t destroy-vnpu.",
                )
            )
        if chip.device_share and chip.key not in ours.shared:
            findings.append(
                warning(
                    f"several containers may open {chip.name} at once: its share flag was set by "
                    "hand",
                    "If that is not wanted, reset it with npu-smi set -t device-share while "
                    "no process uses the NPU.",
                )
            )
    yield from findings
    if not findings:
        policy = board.multi_die_policy
        dies = f"; multi-die policy {policy}" if policy is not None else ""
        yield ok(f"none was cut or shared by hand{dies}")
