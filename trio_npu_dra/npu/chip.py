"""Read one chip, synchronously: run these on the DCMI worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from trio_npu_dra.errors import DcmiError, NotSupported
from trio_npu_dra.npu.dcmi.client import Address, ChipInfo, Dcmi, DieKind, Memory
from trio_npu_dra.npu.families import family_of
from trio_npu_dra.npu.host import Host
from trio_npu_dra.npu.model import Chip, ChipFamily

log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a chip must tell to be offered at all; *board_id* alone may be None."""

    address: Address
    physical_id: int
    logic_id: int
    chip: ChipInfo
    family: ChipFamily
    board_id: int | None


def npus_on_card(dcmi: Dcmi, card_id: int) -> tuple[Address, ...]:
    """Addresses of the NPUs on a card, without its MCU.

    Raises:
        DcmiError: The card does not answer.
    """
    return tuple(address for address in dcmi.addresses(card_id) if dcmi.is_npu(address))


def identify(dcmi: Dcmi, address: Address) -> Identity:
    """Which chip this is.

    Raises:
        DcmiError: It does not tell its ids or names, or is of a family that we do not know.
    """
    logic_id = dcmi.logic_id(address)
    chip = dcmi.chip_info(address)
    board_id = optional("board id", dcmi.board_id, address)
    family = family_of(chip.chip_name, npu_name=chip.npu_name, board_id=board_id)
    if family is None:
        meaning = f"chip name {chip.chip_name!r} is of no family that this driver knows"
        raise NotSupported(0, "dcmi_get_device_chip_info_v2", meaning)
    return Identity(
        address=address,
        physical_id=dcmi.physical_id(logic_id),
        logic_id=logic_id,
        chip=chip,
        family=family,
        board_id=board_id,
    )


def name_only(identity: Identity) -> Chip:
    """The NPU, with what its identity says and nothing else."""
    chip = identity.chip
    return Chip(
        physical_id=identity.physical_id,
        logic_id=identity.logic_id,
        card_id=identity.address.card_id,
        device_id=identity.address.device_id,
        family=identity.family,
        chip_name=chip.chip_name,
        npu_name=chip.npu_name if chip.npu_name not in {"", chip.chip_name} else None,
        ai_cores=chip.ai_cores or None,
    )


def describe(dcmi: Dcmi, host: Host, npu: Chip) -> Chip:
    """Add the facts that the chip and sysfs tell; each may stay None."""
    address = Address(npu.card_id, npu.device_id)
    is_a3 = npu.family is ChipFamily.ASCEND_910_A3
    bus_id = optional("PCI address", dcmi.pci_bus_id, address)
    place = optional("super pod", dcmi.super_pod, address) if is_a3 else None
    return replace(
        npu,
        product_name=optional("product name", dcmi.product_type, address) or None,
        uuid=_uuid(dcmi, npu.family, address),
        memory_bytes=_memory_bytes(dcmi, address),
        pci_bus_id=bus_id,
        pcie_root=host.pcie_root(bus_id) if bus_id else None,
        numa_node=host.numa_node(bus_id) if bus_id else None,
        super_pod_id=place.super_pod_id if place else None,
        super_pod_server_index=place.server_index if place else None,
        super_pod_sdid=place.sdid if place else None,
        device_share=optional("device share", dcmi.device_share, address),
    )


def links(dcmi: Dcmi, one: Identity, others: Iterable[Identity]) -> dict[tuple[int, int], int]:
    """DCMI's link numbers between a chip and others, by pairs of physical ids."""
    asked = {
        (one.physical_id, other.physical_id): optional(
            "link", dcmi.link, one.address, other.address
        )
        for other in others
    }
    return {pair: link for pair, link in asked.items() if link is not None}


def optional(fact: str, read: Callable[..., T], *arguments: Address) -> T | None:
    """What `read(*arguments)` returns, or None where the library has no answer."""
    try:
        return read(*arguments)
    except DcmiError as error:
        log.debug("no %s", fact, extra={"chips": arguments, "error": str(error)})
        return None


def _uuid(dcmi: Dcmi, family: ChipFamily, address: Address) -> str | None:
    """The die id in the form that mind-cluster prints."""
    kind = DieKind.DDIE if family is ChipFamily.ASCEND_950 else DieKind.VDIE
    words = optional("die id", lambda chip: dcmi.die_id(chip, kind), address)
    return "-".join(f"{word:08X}" for word in words) if words and any(words) else None


def _memory_bytes(dcmi: Dcmi, address: Address) -> int | None:
    memory = read_memory(dcmi, address)
    return memory.size_mib * _MIB if memory else None


def read_memory(dcmi: Dcmi, address: Address) -> Memory | None:
    """HBM where the chip has it, else DDR; None where it tells of neither."""
    for read in (dcmi.hbm, dcmi.ddr):
        memory = optional("memory", read, address)
        if memory is not None and memory.size_mib:
            return memory
    return None
