"""Typed, synchronous calls into libdcmi.so, returning plain values.

Every call can block for seconds when a chip hangs: off a test's thread these run on the worker
(`worker.py`) only.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from trio_npu_dra.ascend.dcmi import _functions as f
from trio_npu_dra.ascend.dcmi import _signatures as c
from trio_npu_dra.ascend.dcmi._answers import a_count, counted, fault_event, known, spacious, text
from trio_npu_dra.ascend.dcmi._codes import NOT_SUPPORT
from trio_npu_dra.ascend.dcmi._library import Files, Library
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotReady, NotSupported
from trio_npu_dra.ascend.dcmi.roce_port import RocePortCalls
from trio_npu_dra.ascend.dcmi.types import (
    NO_ANSWER,
    NONE,
    ChipInfo,
    ChipRef,
    DieKind,
    EccCounts,
    FaultEvent,
    Link,
    Memory,
    OnCall,
    Place,
    SuperPodPlace,
    ignore_call,
    is_blank,
)
from trio_npu_dra.ascend.dcmi.vdevices import PartitionCalls

MAX_CARDS: Final = 64
MAX_UNITS: Final = 64  # on one card; the largest have two dies and an MCU
MAX_ERROR_CODES: Final = 128
MAX_PROCESSES: Final = 64  # the manual says 32, the library writes up to 64
GONE: Final = 0xFFFF_FFFF  # health of a chip that does not exist or has not started
NO_SUCH_CHIP: Final = frozenset({-8001, -8007, -8008})  # what calls about no known chip return
_SUPER_POD_COMMAND: Final = (12, 1)  # main command CHIP_INF, sub command SPOD_INFO
_NO_CPU_LIST: Final = frozenset({-8001, -8004})
_CPU_LIST_BYTES: Final = 256  # the library assumes 32
_NPU: Final = 0
_UNITS: Final = frozenset({_NPU, 1, 2})  # an MCU, a CPU; 0xFF is none
_AI_CORES: Final = 2  # which utilization
_AI_CPUS: Final = 3
_VECTOR_CORES: Final = 12
_HBM_ERRORS: Final = 2  # of which memory
_HCCS_COMMAND: Final = (16, 0)  # main command HCCS, sub command GET_STATUS
_HCCS_UP: Final = 3
_CHIP_FAULT: Final = 0  # type of the only events with a known layout

_callbacks: Final[list[Any]] = []
"""The library calls these until the process ends: it has no way to unsubscribe."""


class Dcmi(PartitionCalls, RocePortCalls):
    """The DCMI calls of this driver, in the generation that serves the node's chips.

    Every method raises `DcmiError` (or a subclass that says what to do) for a code other than 0,
    and `NotSupported` where the library or its generation lacks the function.
    """

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._is_decided = False

    @classmethod
    def at(cls, host_root: Path, on_call: OnCall = ignore_call) -> Self:
        """The library of a host, which the first `init` that finds it loads."""
        return cls(Library(host_root, os.environ, on_call))

    @classmethod
    def load(cls, host_root: Path = Path("/"), on_call: OnCall = ignore_call) -> Self:
        """Find and load libdcmi.so; nothing is called yet.

        Raises:
            LibraryMissing: The message says where it was looked for.
        """
        return cls(Library(host_root, os.environ, on_call).load())

    @property
    def library_path(self) -> str:
        """The file in use."""
        return self._library.path

    def replacement(self) -> Files | None:
        """Other files of the library, if they have taken the place of those in use."""
        return self._library.replacement()

    def init(self) -> None:
        """Read the table of chips; again after a hot plug. Never beside another call.

        The first `init` that succeeds decides which generation serves the chips. The first
        generation says "not supported" if and only if they are Ascend 950 (Huawei's driver);
        another error, as while chips boot, decides nothing.

        Raises:
            LibraryMissing: There is no library yet.
        """
        self._library.load()
        try:
            self._call(f.INIT)
        except NotSupported as error:
            if self._is_decided or error.code != NOT_SUPPORT:
                raise
            self._library.call("dcmiv2_init", ())
            self._generation = f.SECOND
        self._is_decided = True

    # --- which chips there are -------------------------------------------------------------------

    def card_list(self) -> tuple[int, ...]:
        """Card ids as of the last `init`; -1 stands for a card that did not answer it."""
        if self._generation == f.SECOND:
            return self._devices()
        count = a_count()
        cards = (ctypes.c_int * MAX_CARDS)()
        self._call(f.CARD_LIST, ctypes.byref(count), cards, MAX_CARDS)
        return tuple(cards[: counted(count, MAX_CARDS, self._name(f.CARD_LIST))])

    def _devices(self) -> tuple[int, ...]:
        """The dev ids; one that is missing below another is a chip that did not answer `init`.

        The kernel numbers the chips from 0 without gaps, and the library leaves such a chip out
        (Huawei's driver).
        """
        count = a_count()
        ids = (ctypes.c_int * MAX_CARDS)()
        self._call(f.DEVICE_LIST, ids, ctypes.byref(count), MAX_CARDS)
        function = self._name(f.DEVICE_LIST)
        listed = set(ids[: counted(count, MAX_CARDS, function)])
        for number in listed:
            if not 0 <= number < MAX_CARDS:
                raise DcmiError(0, function, f"a dev id of {number}, where 0 to 63 can be")
        numbers = range(max(listed, default=-1) + 1)
        return tuple(number if number in listed else NO_ANSWER for number in numbers)

    def units(self, card_id: int) -> tuple[ChipRef, ...]:
        """The units on a card: NPUs, and on A3 an MCU after them; a 950 stands for a card."""
        if self._generation == f.SECOND:
            return (ChipRef(card_id),)
        device_count, mcu, cpu = (ctypes.c_int(-1) for _ in range(3))
        self._call(f.UNITS, card_id, *map(ctypes.byref, (device_count, mcu, cpu)))
        units = counted(device_count, MAX_UNITS, self._name(f.UNITS))
        return tuple(ChipRef(card_id, device_id) for device_id in range(units))

    def place(self, chip: ChipRef) -> Place:
        """The chip's card and its index there; no call."""
        card_id, *on_card = chip.ids
        return Place(card_id, on_card[0] if on_card else 0)

    def is_npu(self, chip: ChipRef) -> bool:
        """Whether the unit is an NPU, rather than an MCU or a CPU.

        Raises:
            NotReady: The library does not know the unit yet, or has lost it.
        """
        kind = self._int(f.TYPE, chip)
        if kind not in _UNITS:
            raise NotReady(0, self._name(f.TYPE), "the unit is of no valid type")
        return kind == _NPU

    def logic_id(self, chip: ChipRef) -> int:
        """The Ascend driver's running number of a chip.

        Raises:
            NotReady: The library answers without one.
        """
        if self._generation == f.SECOND:
            return _told(chip.ids[0], "logic id")
        number = ctypes.c_int(-1)
        self._call(f.LOGIC_ID, ctypes.byref(number), chip)
        return _told(number.value, "logic id")

    def physical_id(self, logic_id: int) -> int:
        """N of the chip's /dev/davinciN.

        Raises:
            NotReady: The library answers without one.
        """
        return _told(self._uint(f.PHYSICAL_ID, logic_id), self._name(f.PHYSICAL_ID))

    # --- facts of a chip -------------------------------------------------------------------------

    def chip_info(self, chip: ChipRef) -> ChipInfo:
        """Names and AI cores of a chip."""
        now = f.CHIP_INFO, c.dcmi_chip_info_v2
        info = self._either(now, (f.CHIP_INFO_BEFORE, c.dcmi_chip_info), chip)
        is_new = isinstance(info, c.dcmi_chip_info_v2)
        return ChipInfo(
            chip_name=text(info.chip_name),
            npu_name=text(info.npu_name) if is_new else "",
            ai_cores=info.aicore_cnt,
        )

    def product_type(self, chip: ChipRef) -> str:
        """The product's name; not offered by servers with 910 chips, nor by 950."""
        return self._text(f.PRODUCT_TYPE, chip)

    def board_id(self, chip: ChipRef) -> int:
        """The board's kind; it tells A3 from older 910 chips."""
        return int(self._struct(f.BOARD_INFO, c.dcmi_board_info, chip).board_id)

    def pci_bus_id(self, chip: ChipRef) -> str:
        """The PCI address `dddd:bb:dd.f`; the chips of a Duo share one, 950 on the UB have none.

        Older libraries leave the domain out: `bb:dd.f`.
        """
        now = f.PCIE_INFO, c.dcmi_pcie_info_all
        info = self._either(now, (f.PCIE_INFO_BEFORE, c.dcmi_pcie_info), chip)
        place = f"{info.bdf_busid:02x}:{info.bdf_deviceid:02x}.{info.bdf_funcid:x}"
        has_domain = isinstance(info, c.dcmi_pcie_info_all)
        return f"{info.domain:04x}:{place}" if has_domain else place

    def die_id(self, chip: ChipRef, kind: DieKind) -> tuple[int, ...]:
        """The five 32-bit words of a die id; older libraries know the vector die's only."""
        try:
            die = self._struct(f.DIE_ID, c.dcmi_die_id, chip, kind)
        except NotSupported:
            if self._generation == f.SECOND or kind is not DieKind.VDIE:
                raise
            die = self._struct(f.VDIE_ID_BEFORE, c.dcmi_die_id, chip)
        return tuple(die.soc_die)

    def hbm(self, chip: ChipRef) -> Memory:
        """High-bandwidth memory; its size is 0 where the chip has none."""
        info = self._struct(f.HBM, c.dcmi_hbm_info, chip)
        return Memory(
            size_mib=info.memory_size,
            used_mib=info.memory_usage,
            temperature=info.temp,
            bandwidth_percent=info.bandwith_util_rate,
        )

    def ddr(self, chip: ChipRef) -> Memory:
        """DDR memory; older libraries report its use in percent."""
        now = f.DDR, c.dcmi_get_memory_info_stru
        info = self._either(now, (f.DDR_BEFORE, c.dcmi_memory_info), chip)
        size = info.memory_size
        is_new = isinstance(info, c.dcmi_get_memory_info_stru)
        used = size - info.memory_available if is_new else size * info.utiliza // 100
        return Memory(size_mib=size, used_mib=used)

    def driver_version(self) -> str:
        """The Ascend driver's version, such as `24.1.rc2`."""
        return self._text(f.DRIVER_VERSION, size=64)

    def link(self, one: ChipRef, other: ChipRef) -> Link:
        """How two chips are connected; 910B, A3 and 950 only."""
        number = self._int(f.LINK, one, other)
        link = known(Link, number)
        return Link.UNKNOWN if link is None else link

    def nearest_cpus(self, chip: ChipRef) -> str:
        """The CPUs nearest to a chip, as the kernel lists them, such as `0-23,48-71`; 950 only.

        For other chips the kernel has the list by PCI address. It is empty if the library finds no
        file of the kernel, or has no room for more than 31 characters (DCMI source).
        """
        cpus, length = ctypes.create_string_buffer(_CPU_LIST_BYTES), ctypes.c_int(_CPU_LIST_BYTES)
        try:
            self._call(f.NEAREST_CPUS, chip, cpus, ctypes.byref(length))
        except DcmiError as error:
            if error.code in _NO_CPU_LIST:
                return ""
            raise
        return text(cpus.value)

    def super_pod(self, chip: ChipRef) -> SuperPodPlace | None:
        """The die's place in a super pod; A3 and 950 only."""
        info = self._in_super_pod(chip)
        place = (info.sdid, info.super_pod_id, info.server_index, info.super_pod_size)
        if NONE in place:
            return None
        return SuperPodPlace(
            sdid=info.sdid, super_pod_id=info.super_pod_id, server_index=info.server_index
        )

    def super_pod_type(self, chip: ChipRef) -> int | None:
        """The kind of super pod, or of a server outside of one; 950 only."""
        info = self._in_super_pod(chip)
        return _number(info.super_pod_type)

    def rack_id(self, chip: ChipRef) -> int | None:
        """The rack of a server in a super pod of racks; 950 only."""
        info = self._in_super_pod(chip)
        return _number(info.chassis_id)

    def _in_super_pod(self, chip: ChipRef) -> c.dcmi_spod_info:
        """What the library writes; it has ones where it writes nothing, which is no number."""
        info = spacious(c.dcmi_spod_info)
        ctypes.memset(ctypes.byref(info), 0xFF, ctypes.sizeof(info))
        return self._device_info(chip, _SUPER_POD_COMMAND, info)

    def mainboard_id(self, chip: ChipRef) -> int | None:
        """The kind of the main board; 950 only."""
        return _number(self._uint(f.MAINBOARD_ID, chip))

    # --- health and telemetry --------------------------------------------------------------------

    def health(self, chip: ChipRef) -> int:
        """0 normal, 1 minor, 2 major, 3 critical alarm, or `GONE`."""
        return self._uint(f.HEALTH, chip)

    def error_codes(self, chip: ChipRef) -> tuple[int, ...]:
        """Active fault codes, in the library's order."""
        count = a_count()
        codes = (ctypes.c_uint * MAX_ERROR_CODES)()
        self._call(f.ERROR_CODES, chip, ctypes.byref(count), codes, MAX_ERROR_CODES)
        found = codes[: counted(count, MAX_ERROR_CODES, self._name(f.ERROR_CODES))]
        return tuple(code for code in found if not is_blank(code))

    def error_text(self, chip: ChipRef, code: int) -> str:
        """The vendor's message for a fault code."""
        return self._text(f.ERROR_TEXT, chip, code)

    def boot_status(self, chip: ChipRef) -> int:
        """0 not started, 1 BIOS, 2 system starting, 3 finished, 16 services up."""
        return self._int(f.BOOT_STATUS, chip)

    def temperature(self, chip: ChipRef) -> int:
        """Degrees Celsius; impossibly high numbers stand for "unknown"."""
        return self._int(f.TEMPERATURE, chip)

    def power(self, chip: ChipRef) -> int:
        """Power of the chip, in tenths of a watt; 310P chips do not report it."""
        return self._int(f.POWER, chip)

    def card_power(self, chip: ChipRef) -> int:
        """Power of the chip's whole card by its MCU, in tenths of a watt; not on 910B, A3 and 950.

        Impossibly high numbers stand for "unknown".
        """
        return self._int(f.CARD_POWER, self.place(chip).card_id)

    def ai_core_utilization(self, chip: ChipRef) -> int:
        """How busy the AI cores are, in percent; 0 while they are profiled."""
        return self._uint(f.UTILIZATION, chip, _AI_CORES)

    def ai_cpu_utilization(self, chip: ChipRef) -> int:
        """How busy the AI CPUs are, in percent."""
        return self._uint(f.UTILIZATION, chip, _AI_CPUS)

    def vector_core_utilization(self, chip: ChipRef) -> int:
        """How busy the vector cores are, in percent; 0 while they are profiled."""
        return self._uint(f.UTILIZATION, chip, _VECTOR_CORES)

    def hbm_errors(self, chip: ChipRef) -> EccCounts | None:
        """Errors of the HBM; None if they are not looked for."""
        info = self._struct(f.ECC, c.dcmi_ecc_info, chip, _HBM_ERRORS)
        if not info.enable_flag:
            return None
        return EccCounts(
            single_bit=_number(info.single_bit_error_cnt),
            double_bit=_number(info.double_bit_error_cnt),
            single_bit_ever=_number(info.total_single_bit_error_cnt),
            double_bit_ever=_number(info.total_double_bit_error_cnt),
            isolated_pages=_number(info.double_bit_isolated_pages_cnt),
        )

    def is_hccs_up(self, chip: ChipRef) -> bool:
        """Whether all HCCS links of a chip are up; without meaning for boards that have none."""
        info = spacious(c.dcmi_hccs_statues)
        info.pcs_status = NONE
        self._device_info(chip, _HCCS_COMMAND, info)
        if info.pcs_status == NONE:
            raise DcmiError(0, self._name(f.DEVICE_INFO), "a state that is not written")
        return (info.pcs_status, info.hdlc_status) == (0, _HCCS_UP)

    def processes(self, chip: ChipRef) -> tuple[int, ...]:
        """The ids, on the host, of the processes on a chip, of all containers."""
        count = a_count()
        found = (c.dcmi_proc_mem_info * MAX_PROCESSES)()
        self._call(f.PROCESSES, chip, found, ctypes.byref(count))
        number = counted(count, MAX_PROCESSES, self._name(f.PROCESSES))
        return tuple(process.proc_id for process in found[:number])

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
            if event.type == _CHIP_FAULT and not is_blank(event.dms_event.event_id):
                handler(fault_event(event.dms_event))

        callback = c.fault_event_callback(receive)
        _callbacks.append(callback)
        every_chip = ChipRef(-1) if self._generation == f.SECOND else ChipRef(-1, -1)
        try:
            self._call(f.SUBSCRIBE, every_chip, c.dcmi_event_filter(), callback)
        except DcmiError:
            _callbacks.remove(callback)
            raise


def _number(number: int) -> int | None:
    return None if number == NONE else number


def _told(number: int, function: str) -> int:
    """The id, if the library has filled it in."""
    if number in {-1, NONE}:
        raise NotReady(0, function, "an answer without an id")
    return number
