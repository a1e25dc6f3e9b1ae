"""What the two generations of libdcmi.so do each in its own way.

The second serves Ascend 950, the first all older chips, never both (Huawei's driver). A call that
both have differs in its name and in the numbers that name a chip: card and device id in the first,
one dev id in the second. So a generation is a table of names and the few calls that find chips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.types import ChipRef, Place

MAX_CARDS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """The C functions by what `Dcmi` calls them; None where the generation has none."""

    init: str
    is_npu: str
    physical_id: str
    chip_info: str
    chip_info_before: str | None = None
    product_type: str | None = None
    board_id: str
    mainboard_id: str | None = None
    pci_bus_id: str
    pci_bus_id_before: str | None = None
    die_id: str
    vdie_id_before: str | None = None
    hbm: str
    ddr: str | None = None
    ddr_before: str | None = None
    driver_version: str
    link: str
    nearest_cpus: str | None = None
    device_info: str
    health: str
    error_codes: str
    error_text: str
    network_health: str
    boot_status: str
    temperature: str
    power: str
    card_power: str | None = None
    utilization: str
    processes: str
    subscribe: str
    multi_die_policy: str | None = None
    device_share: str
    set_device_share: str
    create_vdevice: str | None = None
    destroy_vdevice: str | None = None
    vdevice_mode: str | None = None


class Generation(Protocol):
    """One generation of calls."""

    @property
    def functions(self) -> Functions:
        """Their names."""

    @property
    def all_chips(self) -> tuple[int, ...]:
        """What stands for every chip in a subscription."""

    def card_list(self, library: Library) -> tuple[int, ...]:
        """See `Dcmi.card_list`."""

    def units(self, library: Library, card_id: int) -> tuple[ChipRef, ...]:
        """See `Dcmi.units`."""

    def place(self, chip: ChipRef) -> Place:
        """See `Dcmi.place`."""

    def logic_id(self, library: Library, chip: ChipRef) -> int:
        """See `Dcmi.logic_id`."""
