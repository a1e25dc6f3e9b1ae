"""Typed, synchronous calls into libdcmi.so, returning plain values.

Every call can block for seconds when a chip hangs: off a test's thread these run on the worker
(`worker.py`) only. Out-structs get 256 bytes to spare, because newer libraries write longer ones.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from trio_npu_dra.errors import DcmiError, NotReady, NotSupported
from trio_npu_dra.npu.dcmi import _signatures as c
from trio_npu_dra.npu.dcmi._library import Library, load
from trio_npu_dra.npu.dcmi.calls import OnCall, ignore_call
from trio_npu_dra.npu.dcmi.types import (
    Assertion,
    ChipInfo,
    ChipRef,
    DieKind,
    FaultEvent,
    Link,
    Memory,
    MultiDiePolicy,
    Place,
    Process,
    Severity,
    SuperPodPlace,
)

MAX_CARDS: Final = 64
MAX_UNITS: Final = 64  # on one card; the largest have two dies and an MCU
MAX_ERROR_CODES: Final = 128
MAX_VNPUS: Final = 32
MAX_PROCESSES: Final = 64  # the manual says 32, the library writes up to 64
GONE: Final = 0xFFFF_FFFF  # health of a chip that does not exist or has not started
_NONE: Final = 0xFFFF_FFFF
_UNKNOWN_UNIT: Final = 0xFF
_SPARE_BYTES: Final = 256
_SUPER_POD_COMMAND: Final = (12, 1)  # main command CHIP_INF, sub command SPOD_INFO
_TOTAL_RESOURCE_COMMAND: Final = (52, 1)  # main command VDEV_MNG, sub command TOTAL_RESOURCE
_ALL_CHIPS: Final = (-1, -1)
_AI_CORES: Final = 2  # which utilization
_CHIP_FAULT: Final = 0  # type of the only events with a known layout

S = TypeVar("S", bound=ctypes.Structure)
E = TypeVar("E", bound=IntEnum)

_callbacks: Final[list[Any]] = []
"""The library calls these until the process ends: it has no way to unsubscribe."""


class Dcmi:
    """The DCMI calls of this driver, in the generation for chips before Ascend 950.

    Every method raises `DcmiError` (or a subclass that says what to do) for a code other than 0,
    and `NotSupported` where the library lacks the function.

    Args:
        library: The loaded library.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._call = library.call

    @classmethod
    def load(
        cls,
        host_root: Path = Path("/"),
        on_call: OnCall = ignore_call,
    ) -> Self:
        """Find and load libdcmi.so; nothing is called yet.

        Args:
            host_root: Where the host's `/` is seen.
            on_call: Called after each call that returned, on the calling thread.

        Raises:
            LibraryMissing: The message says where it was looked for.
        """
        return cls(load(host_root, os.environ, on_call))

    @property
    def library_path(self) -> str:
        """The file in use."""
        return self._library.path

    def init(self) -> None:
        """Read the card table; again after a hot plug. Never beside another call."""
        self._call("dcmi_init")

    # --- which chips there are -------------------------------------------------------------------

    def card_list(self) -> tuple[int, ...]:
        """Card ids as of the last `init`; -1 stands for a card that did not answer it."""
        count = ctypes.c_int()
        cards = (ctypes.c_int * MAX_CARDS)()
        function = "dcmi_get_card_list"
        self._call(function, ctypes.byref(count), cards, MAX_CARDS)
        return tuple(cards[: _counted(count, MAX_CARDS, function)])

    def units(self, card_id: int) -> tuple[ChipRef, ...]:
        """The units on a card: NPUs, and on A3 an MCU after them."""
        device_count, mcu, cpu = (ctypes.c_int(-1) for _ in range(3))
        out = (ctypes.byref(number) for number in (device_count, mcu, cpu))
        function = "dcmi_get_device_id_in_card"
        self._call(function, card_id, *out)
        units = _counted(device_count, MAX_UNITS, function)
        return tuple(ChipRef(card_id, device_id) for device_id in range(units))

    def place(self, chip: ChipRef) -> Place:
        """The chip's card and its index there; no call."""
        return Place(card_id=chip.card_id, device_id=chip.device_id)

    def is_npu(self, chip: ChipRef) -> bool:
        """Whether the unit is an NPU, rather than an MCU or a CPU.

        Raises:
            NotReady: The library answers "invalid": it does not know the unit yet, or lost it.
        """
        function = "dcmi_get_device_type"
        kind = self._out_int(function, *_ids(chip))
        if kind == _UNKNOWN_UNIT:
            raise NotReady(0, function, "the unit is of no valid type")
        return kind == 0

    def logic_id(self, chip: ChipRef) -> int:
        """The Ascend driver's running number of a chip."""
        number = ctypes.c_int(-1)
        self._call("dcmi_get_device_logic_id", ctypes.byref(number), *_ids(chip))
        return number.value

    def physical_id(self, logic_id: int) -> int:
        """N of the chip's /dev/davinciN."""
        return self._out_uint("dcmi_get_device_phyid_from_logicid", logic_id)

    # --- facts of a chip -------------------------------------------------------------------------

    def chip_info(self, chip: ChipRef) -> ChipInfo:
        """Names and AI cores of a chip."""
        try:
            info = self._out("dcmi_get_device_chip_info_v2", c.dcmi_chip_info_v2, *_ids(chip))
        except NotSupported:
            old = self._out("dcmi_get_device_chip_info", c.dcmi_chip_info, *_ids(chip))
            return ChipInfo(chip_name=_text(old.chip_name), npu_name="", ai_cores=old.aicore_cnt)
        return ChipInfo(
            chip_name=_text(info.chip_name),
            npu_name=_text(info.npu_name),
            ai_cores=info.aicore_cnt,
        )

    def product_type(self, chip: ChipRef) -> str:
        """The product's name; not offered by servers with 910 chips."""
        buffer = ctypes.create_string_buffer(256)
        self._call("dcmi_get_product_type", *_ids(chip), buffer, len(buffer))
        return _text(buffer.value)

    def board_id(self, chip: ChipRef) -> int:
        """The board's kind; it tells A3 from older 910 chips."""
        info = self._out("dcmi_get_device_board_info", c.dcmi_board_info, *_ids(chip))
        return int(info.board_id)

    def pci_bus_id(self, chip: ChipRef) -> str:
        """The PCI address `dddd:bb:dd.f`; the chips of a Duo card share one."""
        info = self._out("dcmi_get_device_pcie_info_v2", c.dcmi_pcie_info_all, *_ids(chip))
        place = (info.domain, info.bdf_busid, info.bdf_deviceid, info.bdf_funcid)
        return "{:04x}:{:02x}:{:02x}.{:x}".format(*place)

    def die_id(self, chip: ChipRef, kind: DieKind) -> tuple[int, ...]:
        """The five 32-bit words of a die id; older libraries know the vector die's only."""
        try:
            die = self._out("dcmi_get_device_die_v2", c.dcmi_die_id, *_ids(chip), kind)
        except NotSupported:
            if kind is not DieKind.VDIE:
                raise
            die = self._out("dcmi_get_device_die", c.dcmi_die_id, *_ids(chip))
        return tuple(die.soc_die)

    def hbm(self, chip: ChipRef) -> Memory:
        """High-bandwidth memory; its size is 0 where the chip has none."""
        info = self._out("dcmi_get_device_hbm_info", c.dcmi_hbm_info, *_ids(chip))
        return Memory(size_mib=info.memory_size, used_mib=info.memory_usage)

    def ddr(self, chip: ChipRef) -> Memory:
        """DDR memory."""
        function = "dcmi_get_device_memory_info_v3"
        info = self._out(function, c.dcmi_get_memory_info_stru, *_ids(chip))
        return Memory(size_mib=info.memory_size, used_mib=info.memory_size - info.memory_available)

    def driver_version(self) -> str:
        """The Ascend driver's version, such as `24.1.rc2`."""
        buffer = ctypes.create_string_buffer(64)
        self._call("dcmi_get_driver_version", buffer, len(buffer))
        return _text(buffer.value)

    def link(self, one: ChipRef, other: ChipRef) -> Link:
        """How two chips are connected; 910B and A3 only."""
        number = self._out_int("dcmi_get_topo_info_by_device_id", *_ids(one), *_ids(other))
        return _known(Link, number) or Link.UNKNOWN

    def super_pod(self, chip: ChipRef) -> SuperPodPlace | None:
        """The die's place in a super pod; A3 only."""
        info = _spacious(c.dcmi_spod_info)
        size = ctypes.c_uint(ctypes.sizeof(c.dcmi_spod_info))
        out = (ctypes.byref(info), ctypes.byref(size))
        self._call("dcmi_get_device_info", *_ids(chip), *_SUPER_POD_COMMAND, *out)
        if _NONE in (info.sdid, info.super_pod_id, info.server_index):
            return None
        return SuperPodPlace(
            sdid=info.sdid, super_pod_id=info.super_pod_id, server_index=info.server_index
        )

    # --- health and telemetry --------------------------------------------------------------------

    def health(self, chip: ChipRef) -> int:
        """0 normal, 1 minor, 2 major, 3 critical alarm, or `GONE`."""
        return self._out_uint("dcmi_get_device_health", *_ids(chip))

    def error_codes(self, chip: ChipRef) -> tuple[int, ...]:
        """Active fault codes, in the library's order."""
        count = ctypes.c_int()
        codes = (ctypes.c_uint * MAX_ERROR_CODES)()
        out = (ctypes.byref(count), codes, MAX_ERROR_CODES)
        function = "dcmi_get_device_errorcode_v2"
        self._call(function, *_ids(chip), *out)
        return tuple(codes[: _counted(count, MAX_ERROR_CODES, function)])

    def error_text(self, chip: ChipRef, code: int) -> str:
        """The vendor's words for a fault code."""
        buffer = ctypes.create_string_buffer(256)
        self._call("dcmi_get_device_errorcode_string", *_ids(chip), code, buffer, len(buffer))
        return _text(buffer.value)

    def network_health(self, chip: ChipRef) -> int:
        """0 or 6 (being set up): the chip's RoCE port is fine. Can block long on a dropped card."""
        return self._out_int("dcmi_get_device_network_health", *_ids(chip))

    def boot_status(self, chip: ChipRef) -> int:
        """0 not started, 1 BIOS, 2 system starting, 3 finished, 16 services up."""
        return self._out_int("dcmi_get_device_boot_status", *_ids(chip))

    def temperature(self, chip: ChipRef) -> int:
        """Degrees Celsius; impossibly high numbers stand for "unknown"."""
        return self._out_int("dcmi_get_device_temperature", *_ids(chip))

    def power(self, chip: ChipRef) -> int:
        """Power of the chip, in tenths of a watt; 310P chips do not report it."""
        return self._out_int("dcmi_get_device_power_info", *_ids(chip))

    def card_power(self, chip: ChipRef) -> int:
        """Power of the chip's whole card by its MCU, in tenths of a watt; not on 910B and A3.

        Impossibly high numbers stand for "unknown".
        """
        return self._out_int("dcmi_mcu_get_power_info", chip.card_id)

    def ai_core_utilization(self, chip: ChipRef) -> int:
        """How busy the AI cores are, in percent."""
        return self._out_uint("dcmi_get_device_utilization_rate", *_ids(chip), _AI_CORES)

    def processes(self, chip: ChipRef) -> tuple[Process, ...]:
        """The processes on a chip, of all containers."""
        count = ctypes.c_int()
        found = (c.dcmi_proc_mem_info * MAX_PROCESSES)()
        function = "dcmi_get_device_resource_info"
        self._call(function, *_ids(chip), found, ctypes.byref(count))
        return tuple(
            Process(pid=process.proc_id, memory_bytes=process.proc_mem_usage)
            for process in found[: _counted(count, MAX_PROCESSES, function)]
        )

    def subscribe(self, handler: Callable[[FaultEvent], None]) -> None:
        """Call *handler* with every fault event from now on, until the process ends.

        Args:
            handler: Called on a thread of the library; must return at once and never raise.

        Raises:
            DcmiError: Refused. A process can subscribe once (`Busy` after that); a container
                needs root and privileges.
        """

        def receive(pointer: Any) -> None:
            event = pointer.contents  # the library's, and only during this call
            if event.type == _CHIP_FAULT:
                handler(_fault_event(event.dms_event))

        callback = c.fault_event_callback(receive)
        _callbacks.append(callback)
        everything = c.dcmi_event_filter()
        try:
            self._call("dcmi_subscribe_fault_event", *_ALL_CHIPS, everything, callback)
        except DcmiError:
            _callbacks.remove(callback)
            raise

    # --- how chips may be handed out -------------------------------------------------------------

    def multi_die_policy(self) -> MultiDiePolicy:
        """Whether the dies of an A3 card may be parted; A3 only."""
        parted = self._out_int("dcmi_get_multi_die_policy") != 0
        return MultiDiePolicy.INDEPENDENT if parted else MultiDiePolicy.UNION

    def vnpus(self, chip: ChipRef) -> tuple[int, ...]:
        """Ids of the vNPUs that the chip is split into."""
        info = _spacious(c.dcmi_soc_total_resource)
        size = ctypes.c_uint(ctypes.sizeof(c.dcmi_soc_total_resource))
        function = "dcmi_get_device_info"
        out = (ctypes.byref(info), ctypes.byref(size))
        self._call(function, *_ids(chip), *_TOTAL_RESOURCE_COMMAND, *out)
        return tuple(info.vdev_id[: _counted(ctypes.c_int(info.vdev_num), MAX_VNPUS, function)])

    def device_share(self, chip: ChipRef) -> bool:
        """Whether several containers may open the chip at once."""
        return self._out_int("dcmi_get_device_share_enable", *_ids(chip)) == 1

    # --- out parameters --------------------------------------------------------------------------

    def _out(self, function: str, struct: type[S], *arguments: int) -> S:
        """Call with a struct as the last argument and return it filled."""
        out = _spacious(struct)
        self._call(function, *arguments, ctypes.byref(out))
        return out

    def _out_int(self, function: str, *arguments: int) -> int:
        """Call with an int (or enum) as the last argument and return it filled."""
        out = ctypes.c_int(-1)
        self._call(function, *arguments, ctypes.byref(out))
        return out.value

    def _out_uint(self, function: str, *arguments: int) -> int:
        """Call with an unsigned as the last argument and return it filled."""
        out = ctypes.c_uint(_NONE)
        self._call(function, *arguments, ctypes.byref(out))
        return out.value


def _ids(chip: ChipRef) -> tuple[int, int]:
    """The first arguments of the calls about a chip."""
    return chip.card_id, chip.device_id


def _counted(count: ctypes.c_int, limit: int, function: str) -> int:
    """How many things the library says it has returned, after a check.

    Raises:
        DcmiError: The count is impossible.
    """
    if not 0 <= count.value <= limit:
        raise DcmiError(0, function, f"a count of {count.value}, where 0 to {limit} can be")
    return count.value


def _fault_event(raw: Any) -> FaultEvent:
    """The vendor's struct as a value of ours; it names the chip by its logic id."""
    return FaultEvent(
        logic_id=raw.deviceid,
        code=raw.event_id,
        severity=_known(Severity, raw.severity),
        assertion=_known(Assertion, raw.assertion),
        raised_at=raw.alarm_raised_time / 1000,
    )


def _known(kind: type[E], number: int) -> E | None:
    """A number as *kind*; None when the vendor has added one."""
    try:
        return kind(number)
    except ValueError:
        return None


def _spacious(struct: type[S]) -> S:
    """A zeroed struct with spare bytes behind it."""
    return struct.from_buffer(bytearray(ctypes.sizeof(struct) + _SPARE_BYTES))


def _text(raw: bytes) -> str:
    """A C string, which ctypes cut at its NUL, without padding; bytes not of UTF-8 are replaced."""
    return raw.decode(errors="replace").strip()
