"""`dcmiv2_*`: Ascend 950, named by its logic id, called the dev id.

It knows no cards: each device stands for one.
"""

from __future__ import annotations

import ctypes
from typing import Final

from trio_npu_dra.ascend.dcmi._answers import counted
from trio_npu_dra.ascend.dcmi._library import Library
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.generation import MAX_CARDS, Functions, Generation
from trio_npu_dra.ascend.dcmi.types import NO_ANSWER, ChipRef, Place


class _V2:
    functions = Functions(
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
    )
    all_chips = (-1,)

    def card_list(self, library: Library) -> tuple[int, ...]:
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

    def units(self, library: Library, card_id: int) -> tuple[ChipRef, ...]:
        del library
        return (ChipRef(card_id),)

    def place(self, chip: ChipRef) -> Place:
        (dev_id,) = chip.ids
        return Place(card_id=dev_id, device_id=0)

    def logic_id(self, library: Library, chip: ChipRef) -> int:
        del library
        (dev_id,) = chip.ids
        return dev_id


V2: Final[Generation] = _V2()
"""The second generation."""
