"""The functions of libdcmi.so, as the vendor's dcmi_interface_api.h declares them.

There are two generations. The second serves Ascend 950, the first all older chips, never both
(Huawei's driver). A function that both have differs in its name and in the numbers that name a
chip: card and device id in the first, one dev id, which is its logic id, in the second. Every
function returns an `int`: 0, or a code from `_codes`.
"""

from __future__ import annotations

from ctypes import POINTER, c_char_p, c_int, c_uint, c_void_p
from typing import Any, Final

from trio_npu_dra.ascend.dcmi import _signatures as c

FIRST: Final = 0
SECOND: Final = 1

_CHIP: Final = object()
"""Stands for the arguments that name a chip."""


class Function:
    """One function, in both generations.

    Args:
        first: Its name in the first generation; None if that lacks it.
        second: The same in the second.
        arguments: The types of its arguments.
        what: What it is about, for people; of one that a generation lacks.

    Attributes:
        names: By generation.
        argtypes: By generation.
    """

    def __init__(
        self, first: str | None, second: str | None, *arguments: Any, what: str = ""
    ) -> None:
        self.names = first, second
        self.what = what
        self.argtypes = tuple(
            [kind for one in arguments for kind in (numbers if one is _CHIP else [one])]
            for numbers in ([c_int, c_int], [c_int])
        )


_OUT_INT: Final = POINTER(c_int)
_OUT_UINT: Final = POINTER(c_uint)

# --- which chips there are ------------------------------------------------------------------------

INIT: Final = Function("dcmi_init", "dcmiv2_init")
CARD_LIST: Final = Function("dcmi_get_card_list", None, _OUT_INT, _OUT_INT, c_int)
DEVICE_LIST: Final = Function(None, "dcmiv2_get_device_list", _OUT_INT, _OUT_INT, c_int)
UNITS: Final = Function("dcmi_get_device_id_in_card", None, c_int, _OUT_INT, _OUT_INT, _OUT_INT)
TYPE: Final = Function("dcmi_get_device_type", "dcmiv2_get_device_type", _CHIP, _OUT_INT)
LOGIC_ID: Final = Function("dcmi_get_device_logic_id", None, _OUT_INT, _CHIP)
PHYSICAL_ID: Final = Function(
    "dcmi_get_device_phyid_from_logicid",
    "dcmiv2_get_chip_phy_id_by_dev_id",
    c_uint,  # an `int` in the second, which is passed alike
    _OUT_UINT,
)

# --- facts of a chip ------------------------------------------------------------------------------

CHIP_INFO: Final = Function(
    "dcmi_get_device_chip_info_v2",
    "dcmiv2_get_device_chip_info",
    _CHIP,
    POINTER(c.dcmi_chip_info_v2),
)
CHIP_INFO_BEFORE: Final = Function(
    "dcmi_get_device_chip_info", None, _CHIP, POINTER(c.dcmi_chip_info)
)
PRODUCT_TYPE: Final = Function(
    "dcmi_get_product_type", None, _CHIP, c_char_p, c_int, what="product type"
)
BOARD_INFO: Final = Function(
    "dcmi_get_device_board_info", "dcmiv2_get_device_board_info", _CHIP, POINTER(c.dcmi_board_info)
)
MAINBOARD_ID: Final = Function(None, "dcmiv2_get_mainboard_id", _CHIP, _OUT_UINT, what="main board")
PCIE_INFO: Final = Function(
    "dcmi_get_device_pcie_info_v2",
    "dcmiv2_get_device_pcie_info",
    _CHIP,
    POINTER(c.dcmi_pcie_info_all),
)
PCIE_INFO_BEFORE: Final = Function(
    "dcmi_get_device_pcie_info", None, _CHIP, POINTER(c.dcmi_pcie_info)
)
DIE_ID: Final = Function(
    "dcmi_get_device_die_v2", "dcmiv2_get_device_die_id", _CHIP, c_int, POINTER(c.dcmi_die_id)
)
VDIE_ID_BEFORE: Final = Function("dcmi_get_device_die", None, _CHIP, POINTER(c.dcmi_die_id))
HBM: Final = Function(
    "dcmi_get_device_hbm_info", "dcmiv2_get_device_hbm_info", _CHIP, POINTER(c.dcmi_hbm_info)
)
DDR: Final = Function(
    "dcmi_get_device_memory_info_v3",
    None,
    _CHIP,
    POINTER(c.dcmi_get_memory_info_stru),
    what="DDR memory",
)
DDR_BEFORE: Final = Function(
    "dcmi_get_device_memory_info_v2", None, _CHIP, POINTER(c.dcmi_memory_info)
)
DRIVER_VERSION: Final = Function(
    "dcmi_get_driver_version", "dcmiv2_get_driver_version", c_char_p, c_uint
)
LINK: Final = Function(
    "dcmi_get_topo_info_by_device_id", "dcmiv2_get_topo_info_by_device_id", _CHIP, _CHIP, _OUT_INT
)
NEAREST_CPUS: Final = Function(
    None, "dcmiv2_get_affinity_cpu_info_by_dev_id", _CHIP, c_char_p, _OUT_INT, what="nearest CPUs"
)
DEVICE_INFO: Final = Function(
    "dcmi_get_device_info", "dcmiv2_get_device_info", _CHIP, c_int, c_uint, c_void_p, _OUT_UINT
)

# --- health and telemetry -------------------------------------------------------------------------

HEALTH: Final = Function("dcmi_get_device_health", "dcmiv2_get_device_health", _CHIP, _OUT_UINT)
ERROR_CODES: Final = Function(
    "dcmi_get_device_errorcode_v2",
    "dcmiv2_get_device_error_code_list",
    _CHIP,
    _OUT_INT,
    _OUT_UINT,
    c_uint,
)
ERROR_TEXT: Final = Function(
    "dcmi_get_device_errorcode_string",
    "dcmiv2_get_device_error_info",
    _CHIP,
    c_uint,
    c_char_p,
    c_int,
)
NETWORK_HEALTH: Final = Function(
    "dcmi_get_device_network_health", "dcmiv2_get_device_network_health", _CHIP, _OUT_INT
)
ADDRESS: Final = Function(
    "dcmi_get_device_ip",
    None,
    _CHIP,
    c_int,
    c_int,
    POINTER(c.dcmi_ip_addr),
    POINTER(c.dcmi_ip_addr),
    what="address of the RoCE port",
)
GATEWAY: Final = Function(
    "dcmi_get_device_gateway",
    None,
    _CHIP,
    c_int,
    c_int,
    POINTER(c.dcmi_ip_addr),
    what="gateway of the RoCE port",
)
MAC_ADDRESS: Final = Function(
    "dcmi_get_device_mac", None, _CHIP, c_int, c_char_p, c_uint, what="MAC address of the RoCE port"
)
BOOT_STATUS: Final = Function(
    "dcmi_get_device_boot_status", "dcmiv2_get_device_boot_status", _CHIP, _OUT_INT
)
TEMPERATURE: Final = Function(
    "dcmi_get_device_temperature", "dcmiv2_get_device_temperature", _CHIP, _OUT_INT
)
POWER: Final = Function(
    "dcmi_get_device_power_info", "dcmiv2_get_device_power_info", _CHIP, _OUT_INT
)
CARD_POWER: Final = Function(
    "dcmi_mcu_get_power_info", None, c_int, _OUT_INT, what="power of a card"
)
UTILIZATION: Final = Function(
    "dcmi_get_device_utilization_rate",
    "dcmiv2_get_device_utilization_rate",
    _CHIP,
    c_int,
    _OUT_UINT,
)
ECC: Final = Function(
    "dcmi_get_device_ecc_info",
    "dcmiv2_get_device_ecc_info",
    _CHIP,
    c_int,
    POINTER(c.dcmi_ecc_info),
)
PROCESSES: Final = Function(
    "dcmi_get_device_resource_info",
    "dcmiv2_get_device_proc_mem_info",
    _CHIP,
    POINTER(c.dcmi_proc_mem_info),
    _OUT_INT,
)
SUBSCRIBE: Final = Function(
    "dcmi_subscribe_fault_event",
    "dcmiv2_subscribe_fault_event",
    _CHIP,
    c.dcmi_event_filter,
    c.fault_event_callback,
)

# --- how chips may be handed out ------------------------------------------------------------------

MULTI_DIE_POLICY: Final = Function(
    "dcmi_get_multi_die_policy", None, _OUT_INT, what="multi-die policy"
)
DEVICE_SHARE: Final = Function(
    "dcmi_get_device_share_enable", "dcmiv2_get_device_share_enable", _CHIP, _OUT_INT
)
SET_DEVICE_SHARE: Final = Function(
    "dcmi_set_device_share_enable",
    "dcmiv2_set_device_share_enable",
    _CHIP,
    c_int,  # unsigned in the second, which is passed alike
)
CREATE_VDEVICE: Final = Function(
    "dcmi_create_vdevice",
    None,
    _CHIP,
    POINTER(c.dcmi_create_vdev_res_stru),
    POINTER(c.dcmi_create_vdev_out),
    what="vNPUs",
)
DESTROY_VDEVICE: Final = Function("dcmi_set_destroy_vdevice", None, _CHIP, c_uint, what="vNPUs")
VDEVICE_MODE: Final = Function("dcmi_get_vdevice_mode", None, _OUT_INT, what="mode of vNPUs")
