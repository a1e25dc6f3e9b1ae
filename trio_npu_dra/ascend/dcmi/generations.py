"""What the two generations of libdcmi.so do each in its own way.

The second serves Ascend 950, the first all older chips, never both (Huawei's driver). A call that
both have differs in its name and in the numbers that name a chip: card and device id in the first,
one dev id in the second. So a generation is a table of names and the few calls that find chips.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from trio_npu_dra.ascend.dcmi._answers import counted
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.types import NO_ANSWER, ChipRef, Place

MAX_CARDS: Final = 64
MAX_UNITS: Final = 64  # on one card; the largest have two dies and an MCU


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of calls: the C functions by what `Dcmi` calls them; None where it has none.

    Attributes:
        all_chips: What stands for every chip in a subscription.
        card_list: See `Dcmi.card_list`.
        units: See `Dcmi.units`.
        place: See `Dcmi.place`.
        logic_id: See `Dcmi.logic_id`.
    """

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
    all_chips: tuple[int, ...]
    card_list: Callable[[Library], tuple[int, ...]]
    units: Callable[[Library, int], tuple[ChipRef, ...]]
    place: Callable[[ChipRef], Place]
    logic_id: Callable[[Library, ChipRef], int]


# --- the first: a chip is named by its card and its index on the card -----------------------------


def _cards(library: Library) -> tuple[int, ...]:
    count = ctypes.c_int()
    cards = (ctypes.c_int * MAX_CARDS)()
    function = "dcmi_get_card_list"
    library.call(function, ctypes.byref(count), cards, MAX_CARDS)
    return tuple(cards[: counted(count, MAX_CARDS, function)])


def _units(library: Library, card_id: int) -> tuple[ChipRef, ...]:
    device_count, mcu, cpu = (ctypes.c_int(-1) for _ in range(3))
    out = (ctypes.byref(number) for number in (device_count, mcu, cpu))
    function = "dcmi_get_device_id_in_card"
    library.call(function, card_id, *out)
    units = counted(device_count, MAX_UNITS, function)
    return tuple(ChipRef(card_id, device_id) for device_id in range(units))


def _logic_id(library: Library, chip: ChipRef) -> int:
    number = ctypes.c_int(-1)
    library.call("dcmi_get_device_logic_id", ctypes.byref(number), *chip.ids)
    return number.value


V1: Final = Generation(
    init="dcmi_init",
    is_npu="dcmi_get_device_type",
    physical_id="dcmi_get_device_phyid_from_logicid",
    chip_info="dcmi_get_device_chip_info_v2",
    chip_info_before="dcmi_get_device_chip_info",
    product_type="dcmi_get_product_type",
    board_id="dcmi_get_device_board_info",
    pci_bus_id="dcmi_get_device_pcie_info_v2",
    pci_bus_id_before="dcmi_get_device_pcie_info",
    die_id="dcmi_get_device_die_v2",
    vdie_id_before="dcmi_get_device_die",
    hbm="dcmi_get_device_hbm_info",
    ddr="dcmi_get_device_memory_info_v3",
    ddr_before="dcmi_get_device_memory_info_v2",
    driver_version="dcmi_get_driver_version",
    link="dcmi_get_topo_info_by_device_id",
    device_info="dcmi_get_device_info",
    health="dcmi_get_device_health",
    error_codes="dcmi_get_device_errorcode_v2",
    error_text="dcmi_get_device_errorcode_string",
    network_health="dcmi_get_device_network_health",
    boot_status="dcmi_get_device_boot_status",
    temperature="dcmi_get_device_temperature",
    power="dcmi_get_device_power_info",
    card_power="dcmi_mcu_get_power_info",
    utilization="dcmi_get_device_utilization_rate",
    processes="dcmi_get_device_resource_info",
    subscribe="dcmi_subscribe_fault_event",
    multi_die_policy="dcmi_get_multi_die_policy",
    device_share="dcmi_get_device_share_enable",
    set_device_share="dcmi_set_device_share_enable",
    create_vdevice="dcmi_create_vdevice",
    destroy_vdevice="dcmi_set_destroy_vdevice",
    vdevice_mode="dcmi_get_vdevice_mode",
    all_chips=(-1, -1),
    card_list=_cards,
    units=_units,
    place=lambda chip: Place(*chip.ids),
    logic_id=_logic_id,
)
"""`dcmi_*`: every chip before Ascend 950."""

# --- the second: a chip is named by its logic id, called the dev id -------------------------------


def _devices(library: Library) -> tuple[int, ...]:
    """The dev ids; one that is missing below another is a chip that did not answer `init`.

    The kernel numbers the chips from 0 without gaps, and the library leaves such a chip out
    (Huawei's driver).
    """
    count = ctypes.c_int()
    ids = (ctypes.c_int * MAX_CARDS)()
    function = "dcmiv2_get_device_list"
    library.call(function, ids, ctypes.byref(count), MAX_CARDS)
    listed = set(ids[: counted(count, MAX_CARDS, function)])
    for number in listed:
        if not 0 <= number < MAX_CARDS:
            raise DcmiError(0, function, f"a dev id of {number}, where 0 to 63 can be")
    numbers = range(max(listed, default=-1) + 1)
    return tuple(number if number in listed else NO_ANSWER for number in numbers)


V2: Final = Generation(
    init="dcmiv2_init",
    is_npu="dcmiv2_get_device_type",
    physical_id="dcmiv2_get_chip_phy_id_by_dev_id",
    chip_info="dcmiv2_get_device_chip_info",
    board_id="dcmiv2_get_device_board_info",
    mainboard_id="dcmiv2_get_mainboard_id",
    pci_bus_id="dcmiv2_get_device_pcie_info",
    die_id="dcmiv2_get_device_die_id",
    hbm="dcmiv2_get_device_hbm_info",
    driver_version="dcmiv2_get_driver_version",
    link="dcmiv2_get_topo_info_by_device_id",
    nearest_cpus="dcmiv2_get_affinity_cpu_info_by_dev_id",
    device_info="dcmiv2_get_device_info",
    health="dcmiv2_get_device_health",
    error_codes="dcmiv2_get_device_error_code_list",
    error_text="dcmiv2_get_device_error_info",
    network_health="dcmiv2_get_device_network_health",
    boot_status="dcmiv2_get_device_boot_status",
    temperature="dcmiv2_get_device_temperature",
    power="dcmiv2_get_device_power_info",
    utilization="dcmiv2_get_device_utilization_rate",
    processes="dcmiv2_get_device_proc_mem_info",
    subscribe="dcmiv2_subscribe_fault_event",
    device_share="dcmiv2_get_device_share_enable",
    set_device_share="dcmiv2_set_device_share_enable",
    all_chips=(-1,),
    card_list=_devices,
    units=lambda _, card_id: (ChipRef(card_id),),
    place=lambda chip: Place(card_id=chip.ids[0], device_id=0),
    logic_id=lambda _, chip: chip.ids[0],
)
"""`dcmiv2_*`: Ascend 950. It knows no cards: each chip stands for one."""
