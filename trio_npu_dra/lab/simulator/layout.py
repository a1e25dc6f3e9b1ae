"""The state file of a simulated board in Python: every member of `state.h`, at the same place.

The structs are read from the header, so a member is written down once. A test hands every offset
computed here to the compiler as a static assertion on the header.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import ConfigError

_HEADER: Final = (Path(__file__).parent / "state.h").read_text(encoding="utf-8")
_NUMBERS: Final = {
    name: int(value, 0)
    for name, value in re.findall(r"#define (\w+) (\w+?)u?\b", _HEADER)
    if value[0].isdigit()
}
_CODES: Final = {"char": "s", "uint8_t": "B", "uint32_t": "I", "int32_t": "i", "uint64_t": "Q"}
_STRUCT: Final = re.compile(r"struct (\w+) \{\n(.*?)\n\};", re.DOTALL)
_MEMBER: Final = re.compile(r"^    (?:struct )?(\w+) (\w+)(?:\[(.+?)\])?;", re.MULTILINE)

MAGIC: Final = b"NPUBOARD"
VERSION: Final = _NUMBERS["BOARD_VERSION"]
MAX_DEVICES: Final = _NUMBERS["BOARD_DEVICES"]
MAX_FAULTS: Final = _NUMBERS["BOARD_FAULTS"]
MAX_PROCESSES: Final = _NUMBERS["BOARD_PROCESSES"]
MAX_RULES: Final = _NUMBERS["BOARD_RULES"]
MAX_EVENTS: Final = _NUMBERS["BOARD_EVENTS"]
UTILIZATIONS: Final = _NUMBERS["BOARD_UTILIZATIONS"]
NONE: Final = _NUMBERS["NONE"]
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

    def place(self, name: str, code: str, count: int, record: Record | None) -> None:
        """Append a member."""
        alignment = (
            record.alignment if record else 1 if code == "s" else struct.calcsize(f"={code}")
        )
        offset = _round_up(self.end, alignment)
        member = Field(name=name, offset=offset, code=code, count=count, record=record)
        self.fields[name] = member
        self.alignment = max(self.alignment, alignment)
        self.end = offset + member.size


def _round_up(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _records() -> dict[str, Record]:
    """The header's structs by name; a nested one stands before the struct that has it."""
    records: dict[str, Record] = {}
    for name, members in _STRUCT.findall(_HEADER):
        records[name] = Record(name)
        for kind, member, length in _MEMBER.findall(members):
            factors = length.split(" * ") if length else []
            count = math.prod(_NUMBERS.get(factor) or int(factor) for factor in factors)
            records[name].place(member, _CODES.get(kind, ""), count, records.get(kind))
    return records


_FOUND: Final = _records()
RECORDS: Final = tuple(_FOUND.values())
FAULT, PROCESS, RULE, VNPU, DEVICE, EVENT, FACTS = (
    _FOUND[f"board_{name}"]
    for name in ("fault", "process", "rule", "vnpu", "device", "event", "facts")
)
BOARD: Final = _FOUND["board"]
