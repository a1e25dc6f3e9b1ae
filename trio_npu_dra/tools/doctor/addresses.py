"""The addresses of RoCE ports, by which NPUs of several nodes reach each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.hccn_conf import HCCN_CONF, read_hccn_conf
from trio_npu_dra.ascend.health import read_network
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, Chip, ChipNetwork
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.tools.doctor.finding import Finding, ok, warning
from trio_npu_dra.tools.doctor.places import listed, not_read

_GIVE: Final = "Give each NPU its address with hccn_tool -i N -ip -s."


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """What was found besides the addresses, which the Board has.

    Attributes:
        problems: Of ports that have an address, by the chip's name.
        written: What `/etc/hccn.conf` says, by physical id.
        unread: Why that is not known.
    """

    problems: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[int, ChipNetwork] = field(default_factory=dict)
    unread: StorageError | None = None


async def look(worker: DcmiWorker, dcmi: Dcmi, host: Host, board: Board) -> Addresses:
    """Ask the ports that have an address, and read the file."""
    problems = {}
    for chip in board.chips:
        if chip.network is not None:
            with suppress(DcmiError):  # other checks report what else is wrong with the chip
                if problem := await read_network(worker, dcmi, chip.ref):
                    problems[chip.name] = problem
    try:
        return Addresses(problems=problems, written=read_hccn_conf(host))
    except StorageError as error:
        return Addresses(problems=problems, unread=error)


def judge(board: Board, found: Addresses) -> Iterator[Finding]:
    """Whether jobs over several nodes can use the addresses; nothing if there are none."""
    networks = {chip.name: chip.network for chip in board.chips if chip.network}
    findings = [
        *_without_address(board),
        *_with_one_address(networks),
        *_apart(networks),
        *_without_link(networks, found.problems),
        *_written_otherwise(board, found.written),
    ]
    yield from findings
    if found.unread is not None:
        yield not_read(found.unread)
    elif networks and not findings:
        names = dict.fromkeys(str(net) for network in networks.values() for net in _nets(network))
        yield ok(f"{len(networks)} NPUs have one, in {listed(names)}")


def _without_address(board: Board) -> Iterator[Finding]:
    ports = [chip for chip in board.chips if TRAITS[chip.family].has_network_port]
    without = [chip.name for chip in ports if chip.network is None]
    if 0 < len(without) < len(ports):
        yield warning(f"without an address, which other NPUs have: {listed(without)}", _GIVE)


def _with_one_address(networks: Mapping[str, ChipNetwork]) -> Iterator[Finding]:
    holders: dict[str, list[str]] = {}
    for name, network in networks.items():
        for address in network.addresses:
            holders.setdefault(str(address.ip), []).append(name)
    for ip, names in holders.items():
        if len(names) > 1:
            yield warning(f"{listed(names)} have one address, {ip}: no job can have both", _GIVE)


def _apart(networks: Mapping[str, ChipNetwork]) -> Iterator[Finding]:
    """On a first 910 two NPUs each have a network; with gateways each NPU may have its own."""
    members = Counter(net for network in networks.values() for net in _nets(network))
    alone = [
        f"{name} ({network})"
        for name, network in networks.items()
        if network.gateway is None and all(members[net] == 1 for net in _nets(network))
    ]
    if len(networks) > 1 and alone:
        yield warning(
            f"alone in its network, and without a gateway: {listed(alone)}",
            "Put NPUs into one network, or give each a gateway with hccn_tool -i N -gateway -s.",
        )


def _without_link(
    networks: Mapping[str, ChipNetwork], problems: Mapping[str, str]
) -> Iterator[Finding]:
    for name, problem in problems.items():
        yield warning(
            f"{name} has the address {networks[name]}, and no peer reaches it: {problem}",
            "Look at its link with hccn_tool -i N -link -g, at the optical module and the switch.",
        )


def _written_otherwise(board: Board, written: Mapping[int, ChipNetwork]) -> Iterator[Finding]:
    """Containers get the file; HCCL's transports and other programs read addresses there."""
    by_id = {chip.physical_id: chip for chip in board.chips}
    wrong = [
        f"{network} to {_said(by_id.get(number), number)}"
        for number, network in sorted(written.items())
        if not _is_of(by_id.get(number), network)
    ]
    if wrong:
        yield warning(
            f"{HCCN_CONF}, which containers get, is old or of other NPUs: it gives {listed(wrong)}",
            "Set the addresses anew with hccn_tool, which writes the file.",
        )


def _is_of(chip: Chip | None, network: ChipNetwork) -> bool:
    """Whether the chip has the address; on a 950 the numbers of the file are not its chips'."""
    if chip is None:
        return False
    is_like = chip.network is not None and chip.network.addresses == network.addresses
    return is_like or TRAITS[chip.family].uses_unified_bus


def _said(chip: Chip | None, number: int) -> str:
    if chip is None:
        return f"an NPU {number}, which is not here"
    return f"{chip.name}, which has {chip.network or 'none'}"


def _nets(network: ChipNetwork) -> list[str]:
    return [str(address.network) for address in network.addresses]
