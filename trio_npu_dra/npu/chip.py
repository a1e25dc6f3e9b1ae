"""Read one chip, synchronously: run these on the DCMI worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from trio_npu_dra.errors import DcmiError, NotSupported
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import ChipInfo, ChipRef, DieKind, Link, Memory
from trio_npu_dra.npu.families import family_of
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Chip, ChipFamily
from trio_npu_dra.npu.traits import TRAITS

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The facts without which a chip cannot be offered; of these, *board_id* may be None."""

    ref: ChipRef
    physical_id: int
    logic_id: int
    chip: ChipInfo
    family: ChipFamily
    board_id: int | None


def identify(dcmi: Dcmi, ref: ChipRef) -> Identity | None:
    """Read which chip this is; None for a unit that is no NPU, such as the MCU of a card.

    Raises:
        DcmiError: Its ids or names cannot be read, or we do not know its family.
    """
    if not dcmi.is_npu(ref):
        return None
    logic_id = dcmi.logic_id(ref)
    chip = dcmi.chip_info(ref)
    board_id = optional("board id", dcmi.board_id, ref)
    family = family_of(chip.chip_name, npu_name=chip.npu_name, board_id=board_id)
    if family is None:
        meaning = f"chip name {chip.chip_name!r} is of no family that this driver knows"
        raise NotSupported(0, "dcmi_get_device_chip_info_v2", meaning)
    return Identity(
        ref=ref,
        physical_id=dcmi.physical_id(logic_id),
        logic_id=logic_id,
        chip=chip,
        family=family,
        board_id=board_id,
    )


def name_only(dcmi: Dcmi, identity: Identity) -> Chip:
    """The chip with the facts of its identity only; calls nothing."""
    chip, place = identity.chip, dcmi.place(identity.ref)
    return Chip(
        ref=identity.ref,
        physical_id=identity.physical_id,
        logic_id=identity.logic_id,
        card_id=place.card_id,
        device_id=place.device_id,
        board_id=identity.board_id,
        family=identity.family,
        chip_name=chip.chip_name,
        npu_name=chip.npu_name if chip.npu_name not in {"", chip.chip_name} else None,
        ai_cores=chip.ai_cores or None,
    )


def describe(dcmi: Dcmi, host: Host, chip: Chip) -> Chip:
    """Add the facts that the library and sysfs have; each may stay None."""
    chip = read_split(dcmi, chip)
    ref, traits = chip.ref, TRAITS[chip.family]
    bus_id = optional("PCI address", dcmi.pci_bus_id, ref)
    place = optional("super pod", dcmi.super_pod, ref) if traits.has_super_pods else None
    return replace(
        chip,
        product_name=optional("product name", dcmi.product_type, ref) or None,
        uuid=_uuid(dcmi, ref, traits.die_kind),
        memory_bytes=_memory_bytes(dcmi, ref),
        pci_bus_id=bus_id,
        pcie_root=host.pcie_root(bus_id) if bus_id else None,
        numa_node=host.numa_node(bus_id) if bus_id else None,
        super_pod_id=place.super_pod_id if place else None,
        super_pod_server_index=place.server_index if place else None,
        super_pod_sdid=place.sdid if place else None,
    )


def read_split(dcmi: Dcmi, chip: Chip) -> Chip:
    """The chip as others have split and shared it; what cannot be read stays as it was."""
    return replace(
        chip,
        vnpus=_present(dcmi.vnpus, chip.ref, known=chip.vnpus, unsupported=()),
        device_share=_present(
            dcmi.device_share, chip.ref, known=chip.device_share, unsupported=None
        ),
    )


def read_links(dcmi: Dcmi, chip: Chip, others: Iterable[Chip]) -> dict[tuple[int, int], Link]:
    """The links between a chip and others of higher physical ids; those that can be read."""
    links = {
        (chip.physical_id, other.physical_id): optional("link", dcmi.link, chip.ref, other.ref)
        for other in others
    }
    return {pair: link for pair, link in links.items() if link is not None}


def optional(fact: str, read: Callable[..., T], *arguments: ChipRef) -> T | None:
    """What `read(*arguments)` returns, or None where the library has no answer."""
    try:
        return read(*arguments)
    except DcmiError as error:
        names = [str(chip) for chip in arguments]
        log.debug("fact not read", extra={"fact": fact, "chips": names, "error": str(error)})
        return None


def _present(read: Callable[[ChipRef], T], ref: ChipRef, *, known: T, unsupported: T) -> T:
    """What `read(ref)` returns; else *unsupported* or, if it fails otherwise, *known*."""
    try:
        return read(ref)
    except NotSupported:
        return unsupported
    except DcmiError as error:
        log.debug("how a chip is split is not read", extra={"chip": str(ref), "error": str(error)})
        return known


def _uuid(dcmi: Dcmi, ref: ChipRef, kind: DieKind) -> str | None:
    """The die id in the form that mind-cluster prints."""
    words = optional("die id", lambda chip: dcmi.die_id(chip, kind), ref)
    return "-".join(f"{word:08X}" for word in words) if words and any(words) else None


def _memory_bytes(dcmi: Dcmi, ref: ChipRef) -> int | None:
    memory = read_memory(dcmi, ref)
    return memory.size_mib * _MIB if memory else None


def read_memory(dcmi: Dcmi, ref: ChipRef) -> Memory | None:
    """HBM where the chip has it, else DDR; None if neither can be read."""
    for read in (dcmi.hbm, dcmi.ddr):
        memory = optional("memory", read, ref)
        if memory is not None and memory.size_mib:
            return memory
    return None
