"""The values that calls into libdcmi.so take and return; any package may use them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface
from typing import Final, NamedTuple, TypeAlias

IpInterface: TypeAlias = IPv4Interface | IPv6Interface
"""An address with its network."""

IpAddress: TypeAlias = IPv4Address | IPv6Address

NONE: Final = 0xFFFF_FFFF
"""A 32-bit number that the library does not have."""

NO_ANSWER: Final = -1
"""Stands in the list of cards for one that did not answer `init`."""


@dataclass(frozen=True, slots=True, init=False)
class ChipRef:
    """The library's name for a chip: opaque; only `ascend.dcmi` looks into it.

    `str()` gives text for people. Card and device id as facts of a chip come from
    `Dcmi.place`.

    Attributes:
        ids: The numbers by which calls name it: card id and index on the card in the first
            generation, where card ids can be sparse; the dev id in the second.
    """

    ids: tuple[int, ...]

    def __init__(self, *ids: int) -> None:
        object.__setattr__(self, "ids", ids)

    def __str__(self) -> str:
        """Such as `card 3 device 0`, or `device 3`."""
        words = ("card", "device")[-len(self.ids) :]
        return " ".join(f"{word} {number}" for word, number in zip(words, self.ids, strict=True))


def is_blank(*numbers: int, ones: int = NONE) -> bool:
    """Whether an answer was not written: all its numbers are 0 or have all bits set (*ones*)."""
    return {0, ones}.issuperset(numbers)


@dataclass(frozen=True, slots=True)
class Place:
    """The card of a chip and its index there; a chip of the second generation is a card."""

    card_id: int
    device_id: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory of a chip; the last two are known of HBM alone.

    Attributes:
        temperature: Degrees Celsius; impossibly high numbers stand for "unknown".
        bandwidth_percent: How busy its bandwidth is.
    """

    size_mib: int
    used_mib: int
    temperature: int | None = None
    bandwidth_percent: int | None = None


class EccCounts(NamedTuple):
    """Errors of a chip's HBM: corrected (single bit), and others (double bit); None is unknown.

    Attributes:
        single_bit: Since the chip started.
        double_bit: The same.
        single_bit_ever: In the life of the chip.
        double_bit_ever: The same.
        isolated_pages: Pages that are not used any more because of a double-bit error. The vendor
            keeps no count of those with single-bit errors: the field for it is always 0.
    """

    single_bit: int | None
    double_bit: int | None
    single_bit_ever: int | None
    double_bit_ever: int | None
    isolated_pages: int | None


class DieKind(IntEnum):
    """The vector die, or the one that a 950 has instead."""

    VDIE = 1
    DDIE = 2


@dataclass(frozen=True, slots=True)
class ChipInfo:
    """Names of a chip; *npu_name* is empty if the library is too old for it."""

    chip_name: str
    npu_name: str
    ai_cores: int


@dataclass(frozen=True, slots=True)
class SuperPodPlace:
    """The place of a die in a super pod."""

    sdid: int
    super_pod_id: int
    server_index: int


class MultiDiePolicy(StrEnum):
    """Whether the dies of an A3 card go into containers only together, or also one by one."""

    UNION = "union"
    INDEPENDENT = "independent"


class VnpuMode(StrEnum):
    """What the vNPUs of the node are for."""

    CONTAINER = "container"
    VIRTUAL_MACHINE = "virtual machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Resources of a chip, or of a partition; None if the library does not report them.

    Attributes:
        vpc: Units that work on pictures.
        venc: Video encoders.
        vdec: Video decoders.
        jpegd: JPEG decoders.
        jpege: JPEG encoders.
        pngd: PNG decoders, in halves: the smallest partition of a 910 has one and a half.
    """

    ai_cores: int | None = None
    ai_cpus: int | None = None
    memory_mib: int | None = None
    vpc: int | None = None
    venc: int | None = None
    vdec: int | None = None
    jpegd: int | None = None
    jpege: int | None = None
    pngd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VDevice:
    """A vNPU: a partition of a chip.

    Attributes:
        id: N of the host's `/dev/vdavinciN`; no other vNPU of the node has it.
        template: Such as `vir05_1c_8g`.
        in_use: Whether a container has it open.
    """

    id: int
    template: str
    in_use: bool
    resources: Resources


class Link(IntEnum):
    """How two chips are connected (DCMI reference, `dcmi_get_topo_info_by_device_id`).

    Older libraries for 910B use 6 for "unknown": it means SIO on A3 only.
    """

    SELF = 0
    SYS = 1
    PHB = 2
    HCCS = 3
    PXB = 4
    PIX = 5
    SIO = 6
    HCCS_SWITCHED = 7
    UB = 8
    UNKNOWN = 9


class Severity(IntEnum):
    """Of an alarm, in fault events and in a chip's health (DCMI reference)."""

    WARNING = 0
    MINOR = 1
    MAJOR = 2
    CRITICAL = 3


class Assertion(IntEnum):
    """What happened to the fault of an event (DCMI reference)."""

    RECOVERY = 0
    OCCURRENCE = 1
    NOTICE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """An event of the library about a fault.

    Attributes:
        logic_id: The chip, as the Ascend driver numbers chips.
        code: The fault code.
        severity: None for a number that the vendor has added.
        assertion: Whether the fault came or went; None for a number that the vendor has added.
        raised_at: When the fault came, also in a recovery, in seconds since 1970.
        heard_at: `time.monotonic()` when the event arrived.
    """

    logic_id: int
    code: int
    severity: Severity | None
    assertion: Assertion | None
    raised_at: float
    heard_at: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True, slots=True)
class DcmiCall:
    """A call into the library that returned: its C function, duration and return code."""

    function: str
    seconds: float
    code: int


OnCall: TypeAlias = Callable[[DcmiCall], object]
"""Called after each call that returned, on the thread that made it."""


def ignore_call(_: DcmiCall) -> None:
    """Measure nothing."""
