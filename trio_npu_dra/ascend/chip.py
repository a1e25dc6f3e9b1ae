"""Read one chip, synchronously: run these on the DCMI worker."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.types import (
    ChipRef,
    DieKind,
    Link,
    Memory,
    SuperPodPlace,
    is_blank,
)
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Chip, Links
from trio_npu_dra.ascend.tolerant_reader import TolerantReader
from trio_npu_dra.ascend.traits import TRAITS, family_of

_MIB: Final = 1024 * 1024
_MAX_MEMORY_MIB: Final = 1 << 24  # 16 TiB; what is not written can be any number
_MAX_AI_CORES: Final = 1 << 10
_TYPES_WITH_RACKS: Final = frozenset({1, 2})  # of super pods: pods (mind-cluster)


def identify(dcmi: Dcmi, ref: ChipRef) -> Chip | None:
    """Read the facts without which a chip cannot be offered.

    Returns:
        The chip without its other facts; None for a unit that is no NPU, such as a card's MCU.

    Raises:
        DcmiError: Its ids or names cannot be read, or its family is unknown. An unanswered board id
            is an error too: without it an A3 looks like a first 910.
    """
    if not dcmi.is_npu(ref):
        return None
    logic_id, info, board_id = dcmi.logic_id(ref), dcmi.chip_info(ref), _board_id(dcmi, ref)
    family = family_of(info.chip_name, npu_name=info.npu_name, board_id=board_id)
    if family is None:
        meaning = f"chip name {info.chip_name!r} is of no family that this driver knows"
        raise NotSupported(0, "dcmi_get_device_chip_info_v2", meaning)
    place = dcmi.place(ref)
    return Chip(
        ref=ref,
        physical_id=dcmi.physical_id(logic_id),
        logic_id=logic_id,
        card_id=place.card_id,
        device_id=place.device_id,
        board_id=board_id,
        family=family,
        chip_name=info.chip_name,
        npu_name=info.npu_name if info.npu_name not in {"", info.chip_name} else None,
        ai_cores=info.ai_cores if 0 < info.ai_cores <= _MAX_AI_CORES else None,
    )


def _board_id(dcmi: Dcmi, ref: ChipRef) -> int | None:
    """The kind of its board, which tells families apart; None if twice not supported."""
    for _ in range(2):
        with suppress(NotSupported):
            return dcmi.board_id(ref)
    return None


def describe(dcmi: Dcmi, host: Host, chip: Chip, known: Chip | None) -> tuple[Chip, str]:
    """The chip with the facts that the library and sysfs have, and the unanswered ones as text.

    *known* has the last known facts of the chip at this place; they do not apply if the die id
    shows another chip there.
    """
    facts, ref, traits = TolerantReader(), chip.ref, TRAITS[chip.family]
    before = known or chip
    uuid = facts.read("die id", before.uuid, _uuid, dcmi, ref, traits.die_kind, before.uuid)
    if before.has_other_die(uuid):
        before = chip
    memory = facts.read("memory", before.memory_bytes, _memory_bytes, dcmi, chip)
    bus = before.pci_bus_id
    bus_id = facts.read("PCI address", bus, _pci_bus_id, dcmi, host, ref, bus)
    if bus_id:
        numa_node = host.numa_node(bus_id)
    else:
        node = before.numa_node
        numa_node = facts.read("NUMA node", node, _numa_node, dcmi, host, ref, node)
    described = replace(
        chip,
        product_name=facts.read("product name", before.product_name, dcmi.product_type, ref)
        or before.product_name,
        uuid=uuid,
        ai_cores=chip.ai_cores or before.ai_cores,
        memory_bytes=memory,
        pci_bus_id=bus_id,
        pcie_root=host.pcie_root(bus_id) if bus_id else None,
        numa_node=numa_node,
        network=before.network,
    )
    described = _split(dcmi, described, before, facts)
    described = _in_super_pod(dcmi, described, before, facts)
    if traits.uses_unified_bus:
        board = facts.read("main board", before.mainboard_id, dcmi.mainboard_id, ref)
        described = replace(described, mainboard_id=board)
    return described, facts.problem


def read_chip_division(dcmi: Dcmi, chip: Chip) -> tuple[Chip, str]:
    """The chip with its present division (vNPUs, share flag), and the unanswered facts as text.

    And with its place in a super pod, which the library may report late.
    """
    facts = TolerantReader()
    split = _split(dcmi, chip, chip, facts)
    return _in_super_pod(dcmi, split, chip, facts), facts.problem


def read_links(
    dcmi: Dcmi, chip: Chip, others: Iterable[Chip], known: Links
) -> tuple[dict[tuple[int, int], Link], str]:
    """The links between a chip and others of higher physical ids, and the unanswered ones as text.

    A known link stays if the library answers "unknown", which also means that it failed to ask the
    chip (DCMI source).
    """
    facts = TolerantReader()
    links: dict[tuple[int, int], Link] = {}
    for other in others:
        pair = chip.physical_id, other.physical_id
        link = facts.read("link", known.get(pair), dcmi.link, chip.ref, other.ref)
        if link is Link.UNKNOWN:
            link = known.get(pair, link)
        if link is not None:
            links[pair] = link
    return links, facts.problem


def read_memory(dcmi: Dcmi, chip: Chip) -> Memory:
    """The chip's device memory, of the one kind that its family has.

    Raises:
        DcmiError: It cannot be read, or has no size yet.
    """
    is_hbm = TRAITS[chip.family].has_hbm
    memory = (dcmi.hbm if is_hbm else dcmi.ddr)(chip.ref)
    if not 0 < memory.size_mib <= _MAX_MEMORY_MIB:
        raise DcmiError(0, "HBM" if is_hbm else "DDR", f"a size of {memory.size_mib}")
    return memory


def _split(dcmi: Dcmi, chip: Chip, known: Chip, facts: TolerantReader) -> Chip:
    ids = facts.read("vNPUs", known.vnpus, dcmi.vnpus, chip.ref) or ()
    before = {vdevice.id: vdevice for vdevice in known.vdevices}
    # One that is gone meanwhile is left out.
    read = (facts.read(f"vNPU {id_}", before.get(id_), dcmi.vdevice, chip.ref, id_) for id_ in ids)
    return replace(
        chip,
        vnpus=ids,
        vdevices=tuple(vdevice for vdevice in read if vdevice is not None),
        shares_out=facts.read("resources", known.shares_out, dcmi.total_resources, chip.ref),
        device_share=facts.read("device share", known.device_share, dcmi.device_share, chip.ref),
    )


def _in_super_pod(dcmi: Dcmi, chip: Chip, known: Chip, facts: TolerantReader) -> Chip:
    if not TRAITS[chip.family].has_super_pods:
        return chip
    place = facts.read("super pod", _place_of(known), dcmi.super_pod, chip.ref)
    kind, rack = known.super_pod_type, None
    if TRAITS[chip.family].uses_unified_bus:
        kind = facts.read("super pod type", kind, dcmi.super_pod_type, chip.ref)
    if place and kind in _TYPES_WITH_RACKS:
        rack = facts.read("rack", known.rack_id, dcmi.rack_id, chip.ref)
    return replace(
        chip,
        super_pod_id=place.super_pod_id if place else None,
        super_pod_server_index=place.server_index if place else None,
        super_pod_sdid=place.sdid if place else None,
        super_pod_type=kind,
        rack_id=rack,
    )


def _place_of(chip: Chip) -> SuperPodPlace | None:
    """The place in a super pod that a chip is known to have."""
    sdid, super_pod_id = chip.super_pod_sdid, chip.super_pod_id
    server_index = chip.super_pod_server_index
    if sdid is None or super_pod_id is None or server_index is None:
        return None
    return SuperPodPlace(sdid=sdid, super_pod_id=super_pod_id, server_index=server_index)


def _uuid(dcmi: Dcmi, ref: ChipRef, kind: DieKind, known: str | None) -> str | None:
    """The die id in the form that mind-cluster prints; the *known* one if none was written."""
    words = dcmi.die_id(ref, kind)
    return known if is_blank(*words) else "-".join(f"{word:08X}" for word in words)


def _pci_bus_id(dcmi: Dcmi, host: Host, ref: ChipRef, known: str | None) -> str | None:
    """The PCI address; sysfs completes one without a domain.

    The *known* address stays if no accelerator has this place, as when it was not written, or
    accelerators of several domains.
    """
    place = dcmi.pci_bus_id(ref)
    found = {one for one in (*host.accelerators(), known) if one and one.endswith(place)}
    return found.pop() if len(found) == 1 else known


def _numa_node(dcmi: Dcmi, host: Host, ref: ChipRef, known: int | None) -> int | None:
    """The NUMA node of a chip without a PCI address: that of its nearest CPUs.

    The known node stays if no node has just these CPUs, as while a CPU comes or goes.
    """
    node = host.numa_node_of(dcmi.nearest_cpus(ref))
    return known if node is None else node


def _memory_bytes(dcmi: Dcmi, chip: Chip) -> int:
    return read_memory(dcmi, chip).size_mib * _MIB
