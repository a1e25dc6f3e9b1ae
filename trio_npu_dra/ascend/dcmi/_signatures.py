"""Structs of libdcmi.so, as the vendor's dcmi_interface_api.h declares them.

They keep the vendor's names and have the sizes of an LP64 machine (x86-64 and aarch64 agree).
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char, c_float, c_int, c_ubyte, c_uint, c_ulong, c_ulonglong, c_ushort
from typing import Any, ClassVar

Field = tuple[str, Any]


def _all(kind: Any, *names: str) -> list[Field]:
    """Fields of one type, declared together."""
    return [(name, kind) for name in names]


class dcmi_chip_info(ctypes.Structure):
    """Names of a chip, before `dcmi_chip_info_v2` existed."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_char * 32, "chip_type", "chip_name", "chip_ver"),
        ("aicore_cnt", c_uint),
    ]


class dcmi_chip_info_v2(dcmi_chip_info):
    """Names of a chip; npu_name tells the A3 variants apart."""

    _fields_: ClassVar[list[Field]] = [("npu_name", c_char * 32)]


class dcmi_pcie_info_all(ctypes.Structure):
    """Where a chip sits on the PCI bus."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_uint, "venderid", "subvenderid", "deviceid", "subdeviceid"),
        ("domain", c_int),
        *_all(c_uint, "bdf_busid", "bdf_deviceid", "bdf_funcid"),
        ("reserve", c_ubyte * 32),
    ]


class dcmi_pcie_info(ctypes.Structure):
    """Where a chip sits on the PCI bus, before `dcmi_pcie_info_all` existed; without a domain."""

    _fields_: ClassVar[list[Field]] = _all(
        c_uint,
        "deviceid",
        "venderid",
        "subvenderid",
        "subdeviceid",
        "bdf_deviceid",
        "bdf_busid",
        "bdf_funcid",
    )


class dcmi_board_info(ctypes.Structure):
    """The board that carries a chip."""

    _fields_: ClassVar[list[Field]] = _all(c_uint, "board_id", "pcb_id", "bom_id", "slot_id")


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


class dcmi_ecc_info(ctypes.Structure):
    """Errors that the memory corrected (single bit), and others (double bit)."""

    _fields_: ClassVar[list[Field]] = [
        ("enable_flag", c_int),
        *_all(
            c_uint,
            "single_bit_error_cnt",
            "double_bit_error_cnt",
            "total_single_bit_error_cnt",
            "total_double_bit_error_cnt",
            "single_bit_isolated_pages_cnt",
            "double_bit_isolated_pages_cnt",
        ),
    ]


class dcmi_get_memory_info_stru(ctypes.Structure):
    """DDR memory; sizes in MiB."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_ulonglong, "memory_size", "memory_available"),
        ("freq", c_uint),
        *_all(c_ulong, "hugepagesize", "hugepages_total", "hugepages_free"),
        ("utiliza", c_uint),
        ("reserve", c_ubyte * 60),
    ]


class dcmi_memory_info(ctypes.Structure):
    """DDR memory, before `dcmi_get_memory_info_stru` existed; size in MiB, use in percent."""

    _fields_: ClassVar[list[Field]] = [
        ("memory_size", c_ulonglong),
        *_all(c_uint, "freq", "utiliza"),
    ]


class dcmi_proc_mem_info(ctypes.Structure):
    """A process on a chip: its pid on the host, its memory in bytes."""

    _fields_: ClassVar[list[Field]] = [("proc_id", c_int), ("proc_mem_usage", c_ulong)]


class dcmi_ip_addr(ctypes.Structure):
    """An IPv4 address (type 0) in the first four bytes, or an IPv6 address (type 1)."""

    _fields_: ClassVar[list[Field]] = [("u_addr", c_ubyte * 16), ("ip_type", c_int)]


class dcmi_spod_info(ctypes.Structure):
    """The place of a die in an A3 super pod."""

    _fields_: ClassVar[list[Field]] = [
        *_all(
            c_uint,
            "sdid",
            "super_pod_size",
            "super_pod_id",
            "server_index",
            "chassis_id",
            "super_pod_type",
        ),
        ("reserve", c_uint * 6),
    ]


class dcmi_hccs_statues(ctypes.Structure):
    """The state of a chip's HCCS links, of all together."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_uint, "pcs_status", "hdlc_status"),
        ("reserve", c_ubyte * 4),
    ]


class dcmi_computing_resource(ctypes.Structure):
    """Cores, CPUs and memory (MiB) of a chip or of a partition; what is not known is all ones."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_float, "aic", "aiv"),
        ("queues", c_ushort * 8),
        ("memory_size", c_ulonglong),
        ("events", c_uint * 4),
        *_all(
            c_ushort,
            "topic_schedule_aicpu",
            "host_ctrl_cpu",
            "host_aicpu",
            "device_aicpu",
            "topic_ctrl_cpu_slot",
        ),
        ("vdev_aicore_utilization", c_uint),
        *_all(c_ulonglong, "vdev_memory_total", "vdev_memory_free"),
        ("reserved", c_ubyte * 16),
    ]


class dcmi_media_resource(ctypes.Structure):
    """Media engines of a chip or of a partition; what is not known is negative or no number."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_float, "jpegd", "jpege", "vpc", "vdec", "pngd", "venc"),
        ("reserved", c_ubyte * 32),
    ]


class dcmi_soc_total_resource(ctypes.Structure):
    """The vNPUs of a chip, and all that can be shared out of it."""

    _fields_: ClassVar[list[Field]] = [
        ("vdev_num", c_uint),
        ("vdev_id", c_uint * 32),
        *_all(c_uint, "vfg_num", "vfg_bitmap"),
        ("base", c_ulonglong * 8),
        ("computing", dcmi_computing_resource),
        ("media", dcmi_media_resource),
    ]


class dcmi_vdev_query_info(ctypes.Structure):
    """One vNPU; *name* is its template."""

    _fields_: ClassVar[list[Field]] = [
        ("name", c_char * 16),
        *_all(c_uint, "status", "is_container_used", "vfid", "vfg_id"),
        ("container_id", c_ulonglong),
        ("base", c_ulonglong * 8),
        ("computing", dcmi_computing_resource),
        ("media", dcmi_media_resource),
    ]


class dcmi_vdev_query_stru(ctypes.Structure):
    """A question about one vNPU, and the answer."""

    _fields_: ClassVar[list[Field]] = [("vdev_id", c_uint), ("query_info", dcmi_vdev_query_info)]


class dcmi_create_vdev_res_stru(ctypes.Structure):
    """The vNPU that is to be made."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_uint, "vdev_id", "vfg_id"),
        ("template_name", c_char * 32),
        ("reserved", c_ubyte * 64),
    ]


class dcmi_create_vdev_out(ctypes.Structure):
    """The vNPU that was made."""

    _fields_: ClassVar[list[Field]] = [
        *_all(c_uint, "vdev_id", "pcie_bus", "pcie_device", "pcie_func", "vfg_id"),
        ("reserved", c_ubyte * 32),
    ]


class dcmi_event_filter(ctypes.Structure):
    """Which fault events to subscribe to; passed by value."""

    _fields_: ClassVar[list[Field]] = [
        ("filter_flag", c_ulonglong),
        ("event_id", c_uint),
        *_all(c_ubyte, "severity", "node_type"),
        ("resv", c_ubyte * 32),
    ]


class dcmi_dms_fault_event(ctypes.Structure):
    """One fault, its recovery, or a notice."""

    _fields_: ClassVar[list[Field]] = [
        ("event_id", c_uint),
        ("deviceid", c_ushort),
        *_all(
            c_ubyte, "node_type", "node_id", "sub_node_type", "sub_node_id", "severity", "assertion"
        ),
        *_all(c_int, "event_serial_num", "notify_serial_num"),
        ("alarm_raised_time", c_ulonglong),
        ("event_name", c_char * 256),
        ("additional_info", c_char * 32),
        ("resv", c_ubyte * 32),
    ]


class dcmi_event(ctypes.Structure):
    """What a fault callback is given; the vendor's union has this one member."""

    _fields_: ClassVar[list[Field]] = [("type", c_int), ("dms_event", dcmi_dms_fault_event)]


fault_event_callback = ctypes.CFUNCTYPE(None, POINTER(dcmi_event))
