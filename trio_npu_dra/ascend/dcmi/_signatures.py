"""Structs and argument types of libdcmi.so, as the vendor's dcmi_interface_api.h declares them.

Structs keep the vendor's names and have the sizes of an LP64 machine (x86-64 and aarch64 agree).
Every function returns an `int`: 0, or a code from `_codes`.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char,
    c_char_p,
    c_float,
    c_int,
    c_ubyte,
    c_uint,
    c_ulong,
    c_ulonglong,
    c_ushort,
)
from typing import Any, ClassVar

Field = tuple[str, Any]


class dcmi_chip_info(ctypes.Structure):
    """Names of a chip, before `dcmi_chip_info_v2` existed."""

    _fields_: ClassVar[list[Field]] = [
        ("chip_type", c_char * 32),
        ("chip_name", c_char * 32),
        ("chip_ver", c_char * 32),
        ("aicore_cnt", c_uint),
    ]


class dcmi_chip_info_v2(ctypes.Structure):
    """Names of a chip; npu_name tells the A3 variants apart."""

    _fields_: ClassVar[list[Field]] = [
        ("chip_type", c_char * 32),
        ("chip_name", c_char * 32),
        ("chip_ver", c_char * 32),
        ("aicore_cnt", c_uint),
        ("npu_name", c_char * 32),
    ]


class dcmi_pcie_info_all(ctypes.Structure):
    """Where a chip sits on the PCI bus."""

    _fields_: ClassVar[list[Field]] = [
        ("venderid", c_uint),
        ("subvenderid", c_uint),
        ("deviceid", c_uint),
        ("subdeviceid", c_uint),
        ("domain", c_int),
        ("bdf_busid", c_uint),
        ("bdf_deviceid", c_uint),
        ("bdf_funcid", c_uint),
        ("reserve", c_ubyte * 32),
    ]


class dcmi_pcie_info(ctypes.Structure):
    """Where a chip sits on the PCI bus, before `dcmi_pcie_info_all` existed; without a domain."""

    _fields_: ClassVar[list[Field]] = [
        ("deviceid", c_uint),
        ("venderid", c_uint),
        ("subvenderid", c_uint),
        ("subdeviceid", c_uint),
        ("bdf_deviceid", c_uint),
        ("bdf_busid", c_uint),
        ("bdf_funcid", c_uint),
    ]


class dcmi_board_info(ctypes.Structure):
    """The board that carries a chip."""

    _fields_: ClassVar[list[Field]] = [
        ("board_id", c_uint),
        ("pcb_id", c_uint),
        ("bom_id", c_uint),
        ("slot_id", c_uint),
    ]


class dcmi_die_id(ctypes.Structure):
    """The identity burnt into a die."""

    _fields_: ClassVar[list[Field]] = [("soc_die", c_uint * 5)]


class dcmi_hbm_info(ctypes.Structure):
    """High-bandwidth memory; sizes in MiB."""

    _fields_: ClassVar[list[Field]] = [
        ("memory_size", c_ulonglong),
        ("freq", c_uint),
        ("memory_usage", c_ulonglong),
        ("temp", c_int),
        ("bandwith_util_rate", c_uint),
    ]


class dcmi_get_memory_info_stru(ctypes.Structure):
    """DDR memory; sizes in MiB."""

    _fields_: ClassVar[list[Field]] = [
        ("memory_size", c_ulonglong),
        ("memory_available", c_ulonglong),
        ("freq", c_uint),
        ("hugepagesize", c_ulong),
        ("hugepages_total", c_ulong),
        ("hugepages_free", c_ulong),
        ("utiliza", c_uint),
        ("reserve", c_ubyte * 60),
    ]


class dcmi_memory_info(ctypes.Structure):
    """DDR memory, before `dcmi_get_memory_info_stru` existed; size in MiB, use in percent."""

    _fields_: ClassVar[list[Field]] = [
        ("memory_size", c_ulonglong),
        ("freq", c_uint),
        ("utiliza", c_uint),
    ]


class dcmi_proc_mem_info(ctypes.Structure):
    """A process on a chip: its pid on the host, its memory in bytes."""

    _fields_: ClassVar[list[Field]] = [
        ("proc_id", c_int),
        ("proc_mem_usage", c_ulong),
    ]


class dcmi_spod_info(ctypes.Structure):
    """The place of a die in an A3 super pod."""

    _fields_: ClassVar[list[Field]] = [
        ("sdid", c_uint),
        ("super_pod_size", c_uint),
        ("super_pod_id", c_uint),
        ("server_index", c_uint),
        ("chassis_id", c_uint),
        ("super_pod_type", c_uint),
        ("reserve", c_uint * 6),
    ]


class dcmi_computing_resource(ctypes.Structure):
    """Cores, CPUs and memory (MiB) of a chip or of a partition; what is not known is all ones."""

    _fields_: ClassVar[list[Field]] = [
        ("aic", c_float),
        ("aiv", c_float),
        ("queues", c_ushort * 8),
        ("memory_size", c_ulonglong),
        ("events", c_uint * 4),
        ("topic_schedule_aicpu", c_ushort),
        ("host_ctrl_cpu", c_ushort),
        ("host_aicpu", c_ushort),
        ("device_aicpu", c_ushort),
        ("topic_ctrl_cpu_slot", c_ushort),
        ("vdev_aicore_utilization", c_uint),
        ("vdev_memory_total", c_ulonglong),
        ("vdev_memory_free", c_ulonglong),
        ("reserved", c_ubyte * 16),
    ]


class dcmi_media_resource(ctypes.Structure):
    """Media engines of a chip or of a partition; what is not known is negative or no number."""

    _fields_: ClassVar[list[Field]] = [
        ("jpegd", c_float),
        ("jpege", c_float),
        ("vpc", c_float),
        ("vdec", c_float),
        ("pngd", c_float),
        ("venc", c_float),
        ("reserved", c_ubyte * 32),
    ]


class dcmi_soc_total_resource(ctypes.Structure):
    """The vNPUs of a chip, and all that can be shared out of it."""

    _fields_: ClassVar[list[Field]] = [
        ("vdev_num", c_uint),
        ("vdev_id", c_uint * 32),
        ("vfg_num", c_uint),
        ("vfg_bitmap", c_uint),
        ("base", c_ulonglong * 8),
        ("computing", dcmi_computing_resource),
        ("media", dcmi_media_resource),
    ]


class dcmi_vdev_query_info(ctypes.Structure):
    """One vNPU; *name* is its template."""

    _fields_: ClassVar[list[Field]] = [
        ("name", c_char * 16),
        ("status", c_uint),
        ("is_container_used", c_uint),
        ("vfid", c_uint),
        ("vfg_id", c_uint),
        ("container_id", c_ulonglong),
        ("base", c_ulonglong * 8),
        ("computing", dcmi_computing_resource),
        ("media", dcmi_media_resource),
    ]


class dcmi_vdev_query_stru(ctypes.Structure):
    """A question about one vNPU, and the answer."""

    _fields_: ClassVar[list[Field]] = [
        ("vdev_id", c_uint),
        ("query_info", dcmi_vdev_query_info),
    ]


class dcmi_create_vdev_res_stru(ctypes.Structure):
    """The vNPU that is to be made."""

    _fields_: ClassVar[list[Field]] = [
        ("vdev_id", c_uint),
        ("vfg_id", c_uint),
        ("template_name", c_char * 32),
        ("reserved", c_ubyte * 64),
    ]


class dcmi_create_vdev_out(ctypes.Structure):
    """The vNPU that was made."""

    _fields_: ClassVar[list[Field]] = [
        ("vdev_id", c_uint),
        ("pcie_bus", c_uint),
        ("pcie_device", c_uint),
        ("pcie_func", c_uint),
        ("vfg_id", c_uint),
        ("reserved", c_ubyte * 32),
    ]


class dcmi_event_filter(ctypes.Structure):
    """Which fault events to be told of; passed by value."""

    _fields_: ClassVar[list[Field]] = [
        ("filter_flag", c_ulonglong),
        ("event_id", c_uint),
        ("severity", c_ubyte),
        ("node_type", c_ubyte),
        ("resv", c_ubyte * 32),
    ]


class dcmi_dms_fault_event(ctypes.Structure):
    """One fault, its recovery, or a notice."""

    _fields_: ClassVar[list[Field]] = [
        ("event_id", c_uint),
        ("deviceid", c_ushort),
        ("node_type", c_ubyte),
        ("node_id", c_ubyte),
        ("sub_node_type", c_ubyte),
        ("sub_node_id", c_ubyte),
        ("severity", c_ubyte),
        ("assertion", c_ubyte),
        ("event_serial_num", c_int),
        ("notify_serial_num", c_int),
        ("alarm_raised_time", c_ulonglong),
        ("event_name", c_char * 256),
        ("additional_info", c_char * 32),
        ("resv", c_ubyte * 32),
    ]


class dcmi_event(ctypes.Structure):
    """What a fault callback is given; the vendor's union has this one member."""

    _fields_: ClassVar[list[Field]] = [("type", c_int), ("dms_event", dcmi_dms_fault_event)]


fault_event_callback = ctypes.CFUNCTYPE(None, POINTER(dcmi_event))

_OUT_INT = POINTER(c_int)
_OUT_UINT = POINTER(c_uint)
_CHIP = (c_int, c_int)  # card_id, device_id
_DEV = (c_int,)  # dev_id

ARGTYPES: dict[str, tuple[Any, ...]] = {
    "dcmi_init": (),
    "dcmi_get_card_list": (_OUT_INT, _OUT_INT, c_int),
    "dcmi_get_device_id_in_card": (c_int, _OUT_INT, _OUT_INT, _OUT_INT),
    "dcmi_get_device_type": (*_CHIP, _OUT_INT),
    "dcmi_get_device_logic_id": (_OUT_INT, *_CHIP),
    "dcmi_get_device_phyid_from_logicid": (c_uint, _OUT_UINT),
    "dcmi_get_device_chip_info": (*_CHIP, POINTER(dcmi_chip_info)),
    "dcmi_get_device_chip_info_v2": (*_CHIP, POINTER(dcmi_chip_info_v2)),
    "dcmi_get_product_type": (*_CHIP, c_char_p, c_int),
    "dcmi_get_device_board_info": (*_CHIP, POINTER(dcmi_board_info)),
    "dcmi_get_device_pcie_info": (*_CHIP, POINTER(dcmi_pcie_info)),
    "dcmi_get_device_pcie_info_v2": (*_CHIP, POINTER(dcmi_pcie_info_all)),
    "dcmi_get_device_die": (*_CHIP, POINTER(dcmi_die_id)),
    "dcmi_get_device_die_v2": (*_CHIP, c_int, POINTER(dcmi_die_id)),
    "dcmi_get_driver_version": (c_char_p, c_uint),
    "dcmi_get_topo_info_by_device_id": (*_CHIP, *_CHIP, _OUT_INT),
    "dcmi_get_device_info": (*_CHIP, c_int, c_uint, ctypes.c_void_p, _OUT_UINT),
    "dcmi_get_device_hbm_info": (*_CHIP, POINTER(dcmi_hbm_info)),
    "dcmi_get_device_memory_info_v2": (*_CHIP, POINTER(dcmi_memory_info)),
    "dcmi_get_device_memory_info_v3": (*_CHIP, POINTER(dcmi_get_memory_info_stru)),
    "dcmi_get_device_temperature": (*_CHIP, _OUT_INT),
    "dcmi_get_device_power_info": (*_CHIP, _OUT_INT),
    "dcmi_mcu_get_power_info": (c_int, _OUT_INT),
    "dcmi_get_device_utilization_rate": (*_CHIP, c_int, _OUT_UINT),
    "dcmi_get_device_health": (*_CHIP, _OUT_UINT),
    "dcmi_get_device_errorcode_v2": (*_CHIP, _OUT_INT, _OUT_UINT, c_uint),
    "dcmi_get_device_errorcode_string": (*_CHIP, c_uint, c_char_p, c_int),
    "dcmi_get_device_network_health": (*_CHIP, _OUT_INT),
    "dcmi_get_device_resource_info": (*_CHIP, POINTER(dcmi_proc_mem_info), _OUT_INT),
    "dcmi_subscribe_fault_event": (*_CHIP, dcmi_event_filter, fault_event_callback),
    "dcmi_get_device_boot_status": (*_CHIP, _OUT_INT),
    "dcmi_get_multi_die_policy": (_OUT_INT,),
    "dcmi_get_device_share_enable": (*_CHIP, _OUT_INT),
    "dcmi_set_device_share_enable": (*_CHIP, c_int),
    "dcmi_create_vdevice": (
        *_CHIP,
        POINTER(dcmi_create_vdev_res_stru),
        POINTER(dcmi_create_vdev_out),
    ),
    "dcmi_set_destroy_vdevice": (*_CHIP, c_uint),
    "dcmi_get_vdevice_mode": (_OUT_INT,),
    "dcmiv2_init": (),
    "dcmiv2_get_device_list": (_OUT_INT, _OUT_INT, c_int),
    "dcmiv2_get_device_type": (*_DEV, _OUT_INT),
    "dcmiv2_get_chip_phy_id_by_dev_id": (*_DEV, _OUT_UINT),
    "dcmiv2_get_device_chip_info": (*_DEV, POINTER(dcmi_chip_info_v2)),
    "dcmiv2_get_device_board_info": (*_DEV, POINTER(dcmi_board_info)),
    "dcmiv2_get_device_pcie_info": (*_DEV, POINTER(dcmi_pcie_info_all)),
    "dcmiv2_get_device_die_id": (*_DEV, c_int, POINTER(dcmi_die_id)),
    "dcmiv2_get_driver_version": (c_char_p, c_uint),
    "dcmiv2_get_topo_info_by_device_id": (*_DEV, *_DEV, _OUT_INT),
    "dcmiv2_get_affinity_cpu_info_by_dev_id": (*_DEV, c_char_p, _OUT_INT),
    "dcmiv2_get_mainboard_id": (*_DEV, _OUT_UINT),
    "dcmiv2_get_device_info": (*_DEV, c_int, c_uint, ctypes.c_void_p, _OUT_UINT),
    "dcmiv2_get_device_hbm_info": (*_DEV, POINTER(dcmi_hbm_info)),
    "dcmiv2_get_device_temperature": (*_DEV, _OUT_INT),
    "dcmiv2_get_device_power_info": (*_DEV, _OUT_INT),
    "dcmiv2_get_device_utilization_rate": (*_DEV, c_int, _OUT_UINT),
    "dcmiv2_get_device_health": (*_DEV, _OUT_UINT),
    "dcmiv2_get_device_error_code_list": (*_DEV, _OUT_INT, _OUT_UINT, c_uint),
    "dcmiv2_get_device_error_info": (*_DEV, c_uint, c_char_p, c_int),
    "dcmiv2_get_device_network_health": (*_DEV, _OUT_INT),
    "dcmiv2_get_device_proc_mem_info": (*_DEV, POINTER(dcmi_proc_mem_info), _OUT_INT),
    "dcmiv2_subscribe_fault_event": (*_DEV, dcmi_event_filter, fault_event_callback),
    "dcmiv2_get_device_boot_status": (*_DEV, _OUT_INT),
    "dcmiv2_get_device_share_enable": (*_DEV, _OUT_INT),
    "dcmiv2_set_device_share_enable": (*_DEV, c_uint),
}
