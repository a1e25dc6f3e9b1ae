"""A node's NPUs as its ResourceSlices tell them, in the form that the topology is drawn from.

Links between single NPUs are not published; which NPUs are one HCCS domain is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.tools.cli.topology import Topology
from trio_npu_dra.tools.cluster.fleet import DeviceRow, NodeRow


def topology_of_node(node: NodeRow) -> Topology:
    """The topology of a node, as far as it is published."""
    chips = sorted(_chips(node.whole), key=lambda chip: chip.physical_id)
    return Topology(node=node.node, board=Board(chips=tuple(chips)), cpus={}, holds=None)


def _chips(rows: Iterable[DeviceRow]) -> Iterator[Chip]:
    """The devices that are one chip; a module of two dies has no physical id."""
    families = {str(family): family for family in ChipFamily}
    for row in rows:
        attributes = row.device.attributes
        numbers = {name: found.int_ for name, found in attributes.items() if found.int_ is not None}
        words = {name: found.string for name, found in attributes.items() if found.string}
        family = families.get(words.get(fact_names.MODEL, ""))
        if family is None or fact_names.PHYSICAL_ID not in numbers:
            continue
        physical_id = numbers[fact_names.PHYSICAL_ID]
        yield Chip(
            ref=ChipRef(physical_id),
            physical_id=physical_id,
            logic_id=numbers.get(fact_names.LOGIC_ID, physical_id),
            card_id=numbers.get(fact_names.CARD_ID, physical_id),
            device_id=numbers.get(fact_names.DEVICE_ID, 0),
            family=family,
            chip_name=words.get(fact_names.CHIP_NAME, ""),
            numa_node=numbers.get(fact_names.NUMA_NODE),
            topology_group=words.get(fact_names.TOPOLOGY_GROUP),
            module=words.get(fact_names.MODULE),
            super_pod_id=numbers.get(fact_names.SUPER_POD_ID),
            super_pod_server_index=numbers.get(fact_names.SUPER_POD_SERVER_INDEX),
        )
