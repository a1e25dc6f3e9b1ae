"""How the NPUs of a node are connected: as a matrix for people, and as data for programs.

The matrix has the form of `npu-smi info -t topo` and `nvidia-smi topo -m`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from trio_npu_dra.agent.holds.hold import Hold, holds_of
from trio_npu_dra.ascend.dcmi.types import Link
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.tools.cli import table

_RING: Final = "RING"
_UNKNOWN: Final = "NA"

_CODES: Final[Mapping[Link, str]] = MappingProxyType(
    {
        Link.SELF: "X",
        Link.SIO: "SIO",
        Link.HCCS: "HCCS",
        Link.HCCS_SWITCHED: "HCCS_SW",
        Link.UB: "UB",
        Link.PIX: "PIX",
        Link.PXB: "PXB",
        Link.PHB: "PHB",
        Link.SYS: "SYS",
    }
)
"""What the matrix calls a link; the names are those of npu-smi."""

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "X": "the NPU itself",
        "SIO": "SIO, which joins the two dies of a card",
        "HCCS": "HCCS, from NPU to NPU",
        "HCCS_SW": "HCCS through a switch",
        "UB": "UB (Unified Bus)",
        _RING: "one HCCS domain; the Ascend driver does not tell this link",
        "PIX": "PCIe, through one switch",
        "PXB": "PCIe, through several switches",
        "PHB": "PCIe, through the host bridge of a CPU",
        "SYS": "PCIe, and the link between NUMA nodes",
        _UNKNOWN: "not known: the Ascend driver does not tell",
    }
)
"""What each code means, the nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The NPUs of a node, and what is around them.

    Attributes:
        node: The name of the node; None if it is not known.
        board: The chips and their links.
        cpus: The nearest CPUs of each chip, by its name, as a list such as `0-23`.
        holds: Who has what; None if that is not known.
    """

    node: str | None
    board: Board
    cpus: Mapping[str, str]
    holds: tuple[Hold, ...] | None

    def code(self, one: Chip, other: Chip) -> str:
        """How two chips are connected: a key of `MEANINGS`."""
        link = link_between(self.board, one, other)
        if link is not None:
            return _CODES[link]
        is_one_domain = (
            one.topology_group is not None and one.topology_group == other.topology_group
        )
        return _RING if is_one_domain else _UNKNOWN

    def holders(self, chip: Chip) -> tuple[str, ...]:
        """The names of a chip's holders, without those that have admin access."""
        found = holds_of({chip.device_node}, self.holds or ())
        return tuple(dict.fromkeys(str(hold.holder) for hold in found))


def topology_of(
    board: Board, host: Host, *, node: str | None, holds: tuple[Hold, ...] | None
) -> Topology:
    """What is known of the NPUs' surroundings; the CPUs are read from sysfs."""
    cpus: dict[str, str] = {}
    for chip in board.chips:
        near = None
        if chip.pci_bus_id is not None:
            near = host.local_cpus(chip.pci_bus_id)
        elif chip.numa_node is not None:
            near = host.cpus_of(chip.numa_node)
        if near is not None:
            cpus[chip.name] = near
    return Topology(node=node, board=board, cpus=cpus, holds=holds)


def link_between(board: Board, one: Chip, other: Chip) -> Link | None:
    """How two chips of *board* are connected; None if the Ascend driver does not say.

    The Board keeps the library's numbers as they are. 6 means SIO where a card has two dies that
    are joined by it; older libraries for 910B use it for "unknown".
    """
    low, high = sorted((one.physical_id, other.physical_id))
    link = Link.SELF if low == high else board.links.get((low, high))
    if link is Link.SIO and Link.SIO not in TRAITS[one.family].domain_links:
        return None
    return None if link is Link.UNKNOWN else link


# --- for people ----------------------------------------------------------------------------------


def matrix(topology: Topology) -> tuple[str, ...]:
    """A row and a column for each NPU, and a legend of the codes that appear."""
    chips = topology.board.chips
    if not chips:
        return ("no NPU found", *topology.board.unanswered)
    codes = [[topology.code(one, other) for other in chips] for one in chips]
    rows = [["", *(chip.name for chip in chips), "GROUP", "NUMA", "CPU AFFINITY"]]
    for chip, row in zip(chips, codes, strict=True):
        around = (chip.topology_group, chip.numa_node, topology.cpus.get(chip.name))
        rows.append([chip.name, *row, *map(_cell, around)])
    used = {code for row in codes for code in row}
    legend = [("", code, f"= {MEANINGS[code]}") for code in MEANINGS if code in used]
    return (
        *table.lines(rows),
        "",
        *table.lines(legend),
        *(cell for line in super_pods(topology.board) for cell in ("", line)),
        *topology.board.unanswered,
    )


def _cell(fact: str | int | None) -> str:
    return "-" if fact is None else str(fact)


def super_pods(board: Board) -> Iterator[str]:
    """A line for each place in a super pod; chips of one node are in one, as a rule."""
    places = {
        (chip.super_pod_id, chip.super_pod_server_index): None
        for chip in board.chips
        if chip.super_pod_id is not None
    }
    for pod, server in places:
        yield f"super pod {pod}, server {_cell(server)}"


# --- for programs --------------------------------------------------------------------------------


def wire(topology: Topology) -> dict[str, Any]:
    """The same facts, and some more, as JSON has them; what is not known is absent.

    The keys are those of the published attributes, where there is one.
    """
    chips = topology.board.chips
    return {
        "npus": [
            {
                **{
                    key: value for key, value in _facts(topology, chip).items() if value is not None
                },
                "links": {
                    other.name: topology.code(chip, other)
                    for other in chips
                    if other is not chip and topology.code(chip, other) != _UNKNOWN
                },
            }
            for chip in chips
        ]
    }


def _facts(topology: Topology, chip: Chip) -> dict[str, Any]:
    return {
        "name": chip.name,
        "model": chip.family.value,
        "chipName": chip.chip_name,
        "health": chip.health.state.value,
        "faults": chip.health.message or None,
        "heldBy": list(topology.holders(chip)) if topology.holds is not None else None,
        "topologyGroup": chip.topology_group,
        "module": chip.module,
        "numaNode": chip.numa_node,
        "cpuAffinity": topology.cpus.get(chip.name),
        "pciBusID": chip.pci_bus_id,
        "pcieRoot": chip.pcie_root,
        "superPodId": chip.super_pod_id,
        "superPodServerIndex": chip.super_pod_server_index,
        "superPodSdid": chip.super_pod_sdid,
    }
