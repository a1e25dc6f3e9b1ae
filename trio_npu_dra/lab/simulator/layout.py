"""The state file of a simulated board in Python: every field of `state.h`, at the same place.

The C header describes the file to the library, this module describes it to the code that writes it.
A test hands every offset computed here to the compiler as a static assertion on the header.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trio_npu_dra.kit.base.errors import ConfigError

MAGIC = b"NPUBOARD"
VERSION = 5
MAX_DEVICES = 64
MAX_FAULTS = 128
MAX_PROCESSES = 64
MAX_RULES = 64
MAX_EVENTS = 256
UTILIZATIONS = 16
MAX_VNPUS = 16
NONE = 0xFFFFFFFF
"""A 32-bit fact that the board does not have: its call returns "not supported"."""

Value = int | str | Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One C member: a text (`s`), a number (`B`, `I`, `i`, `Q`), or an array of them or records.

    Attributes:
        name: The member's name in `state.h`.
        offset: Bytes from the start of its record.
        code: Format letter of `struct`, empty for nested records.
        count: Array length; for a text the bytes including the terminating zero.
        record: The nested record, `None` for numbers and texts.
    """

    name: str
    offset: int
    code: str
    count: int
    record: Record | None

    @property
    def size(self) -> int:
        """Bytes of the whole member."""
        one = self.record.size if self.record else struct.calcsize(f"={self.code}")
        return one * self.count

    def encode(self, value: Value) -> bytes:
        """The member's bytes for *value*.

        Raises:
            ConfigError: A text does not fit.
        """
        if isinstance(value, str):
            data = value.encode()
            if len(data) >= self.count:
                raise ConfigError(f"{self.name}: {value!r} is longer than {self.count - 1} bytes")
            return data.ljust(self.count, b"\0")
        numbers = (value,) if isinstance(value, int) else tuple(value)
        return struct.pack(f"={self.count}{self.code}", *numbers)

    def decode(self, data: bytes) -> Value:
        """The value of the member's bytes: a text, a number, or a tuple of numbers."""
        if self.code == "s":
            return data.split(b"\0", 1)[0].decode()
        numbers = struct.unpack(f"={self.count}{self.code}", data)
        return int(numbers[0]) if self.count == 1 else numbers


@dataclass(slots=True)
class Record:
    """A C struct with natural alignment, as the compilers of x86-64 and aarch64 lay it out."""

    name: str
    fields: dict[str, Field] = field(default_factory=dict)
    alignment: int = 1
    end: int = 0

    @property
    def size(self) -> int:
        """Bytes of the record with its padding."""
        return _round_up(self.end, self.alignment)

    def add(self, code: str, *names: str, count: int = 1) -> Record:
        """Append members of one number or text type."""
        for name in names:
            self._place(name, 1 if code == "s" else struct.calcsize(f"={code}"), code, count, None)
        return self

    def nest(self, name: str, record: Record, count: int = 1) -> Record:
        """Append an array of records."""
        self._place(name, record.alignment, "", count, record)
        return self

    def pack(self, values: dict[str, Value]) -> bytes:
        """A whole record without nested ones; members that are not given are zero.

        Raises:
            ConfigError: A text does not fit its member.
        """
        data = bytearray(self.size)
        for name, value in values.items():
            member = self.fields[name]
            data[member.offset : member.offset + member.size] = member.encode(value)
        return bytes(data)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields.values())

    def _place(
        self, name: str, alignment: int, code: str, count: int, record: Record | None
    ) -> None:
        offset = _round_up(self.end, alignment)
        member = Field(name=name, offset=offset, code=code, count=count, record=record)
        self.fields[name] = member
        self.alignment = max(self.alignment, alignment)
        self.end = offset + member.size


def _round_up(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


FAULT = Record("board_fault").add("I", "code", "severity").add("Q", "raised_ms")
PROCESS = Record("board_process").add("i", "pid").add("Q", "memory")
RULE = (
    Record("board_rule")
    .add("s", "function", count=64)
    .add("i", "physical_id", "code")
    .add("I", "delay_ms", "active", "hang", "answers", "until_change")
)
VNPU = Record("board_vnpu").add("I", "id", "in_use").add("s", "template_name", count=32)
DEVICE = (
    Record("board_device")
    .add("I", "physical_id", "card_id", "device_id", "slot_id")
    .add("I", "pci_domain", "pci_bus", "pci_device", "pci_function")
    .add("I", "die", count=5)
    .add("I", "aicore_count", "sdid")
    .add("B", "ip", "ip_mask", count=4)
    .add("s", "cpu_list", "serial_number", count=64)
    .add("I", "presence", "keeps_number", "health", "forced_health", "network_health", "link_up")
    .add("I", "hccs_status", "share_enable")
    .add("i", "temperature", "power")
    .add("I", "utilization", count=UTILIZATIONS)
    .add("Q", "hbm_size", "hbm_used")
    .add("I", "hbm_frequency")
    .add("i", "hbm_temperature")
    .add("Q", "ddr_size", "ddr_available")
    .add("I", "ddr_frequency", "ecc_single", "ecc_double", "process_count")
    .nest("processes", PROCESS, MAX_PROCESSES)
    .add("I", "fault_count")
    .nest("faults", FAULT, MAX_FAULTS)
    .add("I", "vnpu_count")
    .nest("vnpus", VNPU, MAX_VNPUS)
)
EVENT = (
    Record("board_event")
    .add("Q", "raised_ms")
    .add("I", "physical_id", "code", "severity", "assertion", "node_type")
    .add("i", "serial")
    .add("s", "name", count=200)
    .add("s", "additional", count=32)
)
FACTS = (
    Record("board_facts")
    .add("B", "magic", count=8)
    .add("I", "version", "size", "device_count")
    .add("I", "generation", "has_mcu", "has_topology", "power_by_mcu")
    .add("I", "ecc_kinds", "ai_cpus", "vnpu_details", "die_type", "multi_die_policy")
    .add("I", "vnpu_mode", "vnpu_recover", "unprivileged")
    .add("I", "board_id", "pcb_id", "bom_id", "mainboard_id")
    .add("I", "pci_vendor", "pci_device", "pci_subvendor", "pci_subdevice")
    .add("I", "super_pod_size", "super_pod_id", "super_pod_type", "server_index", "chassis_id")
    .add("s", "driver_version", "dcmi_version", "product_type", count=64)
    .add("s", "chip_type", "chip_name", "chip_version", "npu_name", count=32)
    .add("s", "elabel_product", "elabel_model", "elabel_manufacturer", "elabel_date", count=64)
    .add("s", "dev_root", count=1024)
)
BOARD = (
    Record("board")
    .nest("facts", FACTS)
    .add("Q", "next_event")
    .add("I", "events_lost", "calls_beside_init")
    .add("B", "topology", count=MAX_DEVICES * MAX_DEVICES)
    .nest("rules", RULE, MAX_RULES)
    .nest("devices", DEVICE, MAX_DEVICES)
    .nest("events", EVENT, MAX_EVENTS)
)
RECORDS = (FAULT, PROCESS, RULE, VNPU, DEVICE, EVENT, FACTS, BOARD)
