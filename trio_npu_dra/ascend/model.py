"""The Board: everything known of the node's chips; a fact that could not be read is `None`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias, get_type_hints

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.dcmi.types import (
    ChipRef,
    IpAddress,
    IpInterface,
    Link,
    MultiDiePolicy,
    Resources,
    VDevice,
    VnpuMode,
)
from trio_npu_dra.kit.base.health import HealthState


class ChipFamily(StrEnum):
    """Chip generations that differ in how they are driven (DCMI reference; mind-cluster names)."""

    ASCEND_310 = "Ascend310"
    ASCEND_310B = "Ascend310B"
    ASCEND_310P = "Ascend310P"
    ASCEND_910 = "Ascend910"
    ASCEND_910B = "Ascend910B"
    ASCEND_910_A3 = "Ascend910A3"
    ASCEND_950 = "Ascend950"


class FaultLevel(StrEnum):
    """How a fault is to be handled, mildest first; the names are those of MindCluster's table."""

    NORMAL = "NormalNPU"
    NOT_HANDLE = "NotHandleFault"
    SUB_HEALTH = "SubHealthFault"
    RESTART_REQUEST = "RestartRequest"
    RESTART_BUSINESS = "RestartBusiness"
    FREE_RESTART_NPU = "FreeRestartNPU"
    RESTART_NPU = "RestartNPU"
    PRE_SEPARATE_NPU = "PreSeparateNPU"
    SEPARATE_NPU = "SeparateNPU"
    MANUALLY_SEPARATE_NPU = "ManuallySeparateNPU"

    @property
    def rank(self) -> int:
        """A larger number is worse."""
        return _RANKS[self]

    @property
    def is_unhealthy(self) -> bool:
        """Whether an NPU with this level is unfit for work (where MindCluster draws the line)."""
        return self.rank > _RANKS[FaultLevel.SUB_HEALTH]


_RANKS = {level: rank for rank, level in enumerate(FaultLevel)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of an NPU.

    Attributes:
        code: As DCMI reports it; 0 is an alarm that has no code.
        level: How it is to be handled.
        rule: Why it has this level, as a short text.
        text: The library's message for the code, empty when it has none.
        since: When it was first seen, in seconds since 1970; 0 if unknown.
        is_settled: Whether it has lasted long enough to evict pods.
    """

    code: int
    level: FaultLevel
    rule: str
    text: str = ""
    since: float
    is_settled: bool = True

    def __str__(self) -> str:
        """One line for people."""
        words = f"{self.code:08X}", self.text, f"({self.level}, {self.rule})"
        return " ".join(filter(None, words))


def worst_first(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults of one chip by level, then by code."""
    return tuple(sorted(faults, key=lambda fault: (-fault.level.rank, fault.code)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipHealth:
    """The health of one chip, or of an offer: that of its worst chip.

    Attributes:
        faults: Worst first.
        unmonitored: Why its health cannot be read now, empty if it can; *faults* are then the last
            known ones.
        is_doubt: Whether readings do not agree yet, which takes a second.
        network: The trouble of its RoCE port; empty if none is known.
    """

    faults: tuple[Fault, ...] = ()
    unmonitored: str = ""
    is_doubt: bool = False
    network: str = ""

    @property
    def level(self) -> FaultLevel:
        """The level of the worst fault."""
        return self.faults[0].level if self.faults else FaultLevel.NORMAL

    @property
    def state(self) -> HealthState:
        """The verdict; a known fault stands until a reading shows that it is gone."""
        if self.level.is_unhealthy:
            return HealthState.UNHEALTHY
        return HealthState.UNKNOWN if self.unmonitored else HealthState.HEALTHY

    @property
    def troubles(self) -> tuple[str, ...]:
        """The text of every trouble, worst fault first."""
        return tuple(filter(None, (*map(str, self.faults), self.unmonitored, self.network)))

    @property
    def message(self) -> str:
        """One line for people; empty if nothing is wrong."""
        return "; ".join(self.troubles)


HEALTHY = ChipHealth()


def worst_of(healths: Mapping[str, ChipHealth]) -> ChipHealth:
    """The health of chips that are handed out as one: a fault of one is a fault of all.

    Args:
        healths: By the chip's name, with which troubles begin if there are several chips.
    """
    if len(healths) == 1:
        return next(iter(healths.values()))
    faults = [
        replace(fault, text=f"{name}: {fault.text}".rstrip(": "))
        for name, health in healths.items()
        for fault in health.faults
    ]
    return ChipHealth(
        faults=tuple(sorted(faults, key=lambda fault: fault.level.rank, reverse=True)),
        unmonitored=_named((name, health.unmonitored) for name, health in healths.items()),
        network=_named((name, health.network) for name, health in healths.items()),
    )


def _named(troubles: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {trouble}" for name, trouble in troubles if trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipNetwork:
    """How a chip's RoCE port is reached.

    Its name is not known: the port is in the chip, neither on the host nor in a container.

    Attributes:
        addresses: With their networks; of one IP version.
        gateway: None if it has none.
        mac: Such as `02:00:00:00:00:01`.
    """

    addresses: tuple[IpInterface, ...]
    gateway: IpAddress | None = None
    mac: str | None = None

    def __str__(self) -> str:
        """One line for people, such as `10.20.0.13/24 via 10.20.0.1 (02:00:00:00:00:01)`."""
        words = [", ".join(map(str, self.addresses))]
        words += [f"via {self.gateway}"] if self.gateway else []
        words += [f"({self.mac})"] if self.mac else []
        return " ".join(words)


class Published:
    """Marks a fact of chips that ResourceSlices have as an attribute.

    Args:
        names: What expressions in CEL call it.
        of_whole: Whether it is true of a whole chip only, and not of a partition of it.
    """

    def __init__(self, *names: str, of_whole: bool = False) -> None:
        self.names = names
        self.of_whole = of_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One chip (a die, where a card has several), as DCMI and sysfs describe it.

    Chips are monitored; claims get an `Offer` (`ascend.offers`).

    Attributes:
        ref: The library's name for it.
        physical_id: N of `/dev/davinciN`; stable while the hardware stays.
        logic_id: The Ascend driver's running number; fault events name a chip by it.
        card_id: Card ids can be sparse. A 950 has its logic id here.
        device_id: Its index on the card.
        chip_name: Such as `910B4`.
        npu_name: Such as `9392` (A3), when it says more than *chip_name*.
        product_name: Such as `Atlas 300I Duo`.
        uuid: Die id, 8 upper-case hex digits a word, joined with `-`.
        memory_bytes: HBM or DDR as the Ascend driver reports it.
        pci_bus_id: `dddd:bb:dd.f`, lower case; two chips of a Duo share one.
        pcie_root: The root complex above it, `pci0000:c0`.
        topology_group: NPUs with one HCCS domain (950: joined by the UB) share it, `ring-0`.
        module: Dies of one card share it, `module-3`; only where a card has several.
        super_pod_server_index: The node's index in the super pod (A3, 950).
        super_pod_sdid: The die's address in the super pod.
        super_pod_type: The kind of super pod or server (950): 0 a server of 8, 1 and 2 pods, 3 and
            4 servers of 16 and 32.
        rack_id: The rack in the super pod (950 in a pod).
        mainboard_id: The kind of the main board (950).
        device_share: Whether several containers may open it at once.
        vnpus: Ids of the vNPUs that it is split into; then it cannot be handed out whole.
        vdevices: The vNPUs that the library describes.
        shares_out: The resources that it reports for vNPUs.
        network: The addresses of its RoCE port; None if it has none, or they are not known.
        unlisted: Whether the last list of cards lacked it, and no list before; it may be booting,
            and is gone if the next list lacks it too. Its facts are the last known ones.
        gone: Whether it has left; its facts are the last known ones.
    """

    ref: ChipRef
    physical_id: Annotated[int, Published(fact_names.PHYSICAL_ID)]
    logic_id: Annotated[int, Published(fact_names.LOGIC_ID, of_whole=True)]
    card_id: Annotated[int, Published(fact_names.CARD_ID)]
    device_id: Annotated[int, Published(fact_names.DEVICE_ID)]
    family: Annotated[ChipFamily, Published(fact_names.MODEL)]
    chip_name: Annotated[str, Published(fact_names.CHIP_NAME)]
    board_id: int | None = None
    npu_name: Annotated[str | None, Published(fact_names.NPU_NAME)] = None
    product_name: Annotated[str | None, Published(fact_names.PRODUCT_NAME)] = None
    uuid: Annotated[str | None, Published("uuid", of_whole=True)] = None
    memory_bytes: int | None = None
    ai_cores: int | None = None
    pci_bus_id: Annotated[str | None, Published(fact_names.PCI_BUS_ID, of_whole=True)] = None
    pcie_root: Annotated[str | None, Published(fact_names.PCIE_ROOT)] = None
    numa_node: Annotated[
        int | None, Published(fact_names.NUMA_NODE, fact_names.STANDARD_NUMA_NODE)
    ] = None
    topology_group: Annotated[str | None, Published(fact_names.TOPOLOGY_GROUP)] = None
    module: Annotated[str | None, Published(fact_names.MODULE)] = None
    super_pod_id: Annotated[int | None, Published(fact_names.SUPER_POD_ID)] = None
    super_pod_server_index: Annotated[int | None, Published(fact_names.SUPER_POD_SERVER_INDEX)] = (
        None
    )
    super_pod_sdid: Annotated[int | None, Published("superPodSdid", of_whole=True)] = None
    super_pod_type: int | None = None
    rack_id: int | None = None
    mainboard_id: int | None = None
    device_share: bool | None = None
    vnpus: tuple[int, ...] = ()
    vdevices: tuple[VDevice, ...] = ()
    shares_out: Resources | None = None
    network: ChipNetwork | None = None
    unlisted: bool = False
    gone: bool = False
    health: ChipHealth = HEALTHY

    @property
    def name(self) -> str:
        """Its name for people, and the DRA device name where it is offered by itself."""
        return f"npu-{self.physical_id}"

    def has_other_die(self, uuid: str | None) -> bool:
        """Whether a die id differs from its own; False while one of them is unknown."""
        return None not in {uuid, self.uuid} and uuid != self.uuid

    @property
    def is_listed(self) -> bool:
        """Whether the library lists it and can be asked about it."""
        return not self.gone and not self.unlisted

    @property
    def device_node(self) -> str:
        """Its character device on the host; holds are compared by it."""
        return f"/dev/davinci{self.physical_id}"

    @property
    def key(self) -> str:
        """Its identity across reboots: its die id, else its device node."""
        return self.uuid or self.device_node


PUBLISHED: Final[Mapping[str, Published]] = {
    field: mark
    for field, hint in get_type_hints(Chip, include_extras=True).items()
    for mark in getattr(hint, "__metadata__", ())
    if isinstance(mark, Published)
}
"""The marks of those facts of a chip that have one."""


Links: TypeAlias = Mapping[tuple[int, int], Link]
"""How chips are connected, by pairs of physical ids, the lower one first."""

NO_LINKS: Final[Links] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Board:
    """All chips of the node at one moment, ordered by physical id.

    Attributes:
        chips: The chips, none twice.
        links: Only those that could be read.
        driver_version: Such as `24.1.rc2`.
        multi_die_policy: How A3 dies may be handed out; None on other chips.
        vnpu_mode: None if the Ascend driver does not report it.
        unanswered: A line for each card or chip that is listed but could not be read, wholly or in
            part; one whose identity could not be read is in *chips* only if it was known before.
        unlisted_accelerators: PCI addresses, or device nodes where chips have none, that the Ascend
            driver does not list: they may be booting.
        heard_at: `time.monotonic()` of the fault event that changed this Board; None if something
            else did. Not compared.
        is_read: Whether the library has listed the cards, or there is no Ascend hardware.
    """

    chips: tuple[Chip, ...] = ()
    links: Links = field(default_factory=lambda: NO_LINKS)  # Python 3.11 takes no such default
    driver_version: str | None = None
    multi_die_policy: MultiDiePolicy | None = None
    vnpu_mode: VnpuMode | None = None
    unanswered: tuple[str, ...] = ()
    unlisted_accelerators: tuple[str, ...] = ()
    heard_at: float | None = field(default=None, compare=False)
    is_read: bool = True

    @cached_property
    def by_name(self) -> dict[str, Chip]:
        """Chips by name."""
        return {chip.name: chip for chip in self.chips}

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why chips or facts may be missing, as text."""
        return (
            *self.unanswered,
            *(f"accelerator {address} is not listed" for address in self.unlisted_accelerators),
        )


EMPTY_BOARD = Board()

UNREAD_BOARD = Board(unanswered=("the NPUs have not been read yet",), is_read=False)
"""What is known before the library was asked."""
