"""`dcmi_*`: every chip before Ascend 950, named by its card and its index on the card."""

from __future__ import annotations

import ctypes
from typing import Final

from trio_npu_dra.ascend.dcmi._answers import counted
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.generation import MAX_CARDS, Functions, Generation
from trio_npu_dra.ascend.dcmi.types import ChipRef, Place

MAX_UNITS: Final = 64  # on one card; the largest have two dies and an MCU


class _V1:
    functions = Functions(
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
    )
    all_chips = (-1, -1)

    def card_list(self, library: Library) -> tuple[int, ...]:
        count = ctypes.c_int()
        cards = (ctypes.c_int * MAX_CARDS)()
        function = "dcmi_get_card_list"
        library.call(function, ctypes.byref(count), cards, MAX_CARDS)
        return tuple(cards[: counted(count, MAX_CARDS, function)])

    def units(self, library: Library, card_id: int) -> tuple[ChipRef, ...]:
        device_count, mcu, cpu = (ctypes.c_int(-1) for _ in range(3))
        out = (ctypes.byref(number) for number in (device_count, mcu, cpu))
        function = "dcmi_get_device_id_in_card"
        library.call(function, card_id, *out)
        units = counted(device_count, MAX_UNITS, function)
        return tuple(ChipRef(card_id, device_id) for device_id in range(units))

    def place(self, chip: ChipRef) -> Place:
        card_id, device_id = chip.ids
        return Place(card_id=card_id, device_id=device_id)

    def logic_id(self, library: Library, chip: ChipRef) -> int:
        number = ctypes.c_int(-1)
        library.call("dcmi_get_device_logic_id", ctypes.byref(number), *chip.ids)
        return number.value


V1: Final[Generation] = _V1()
"""The first generation."""
