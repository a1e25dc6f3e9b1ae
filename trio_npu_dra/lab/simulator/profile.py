"""A profile: the data file that describes a simulated board before anything happens.

Profiles ship with the package (`profiles/*.json`) and name the source of their figures. Unknown
or missing fields are refused with the field's name.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel

from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated
from trio_npu_dra.lab.simulator.layout import MAX_DEVICES

PROFILES = Path(__file__).parent / "profiles"

NodeName = Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_]+)?$")]


def _from_hex(text: object) -> int:
    if not isinstance(text, str) or not text.startswith("0x"):
        raise ValueError(f'{text!r} is not a hex number such as "0x41"')
    return int(text, 16)


U32 = Annotated[int, Field(ge=0, le=0xFFFFFFFE)]
HexId = Annotated[U32, BeforeValidator(_from_hex)]
Word = Annotated[str, Field(pattern=r"^[0-9A-F]{8}$")]
ShortText = Annotated[str, Field(max_length=31)]
Text = Annotated[str, Field(max_length=63)]
PciAddress = Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$")]
PciRootPort = Annotated[
    str, Field(pattern=r"^pci[0-9a-f]{4}:[0-9a-f]{2}(/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f.]{4})+$")
]
LAST_SERVER = 255
SDID_SERVER = 22
"""The bits of an sdid below the server's index."""
Link = Literal["sys", "phb", "hccs", "pxb", "pix", "sio", "hccs-switch", "ub", "unknown"]


class _Strict(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", frozen=True, strict=True, populate_by_name=False
    )


class MemoryFacts(_Strict):
    """One kind of memory of a chip; sizes in MB, the clock in MHz."""

    size_mb: U32
    idle_mb: U32
    frequency_mhz: U32


class ChipFacts(_Strict):
    """The facts that all chips of the board share.

    Attributes:
        ai_cores: AI cores per chip.
        ai_cpus: AI CPUs per chip, in vNPU queries.
        hbm: On-chip memory; `None` where the chip has none (310P).
        ddr: Memory of chips without HBM; `None` where the DDR call is not supported.
        ecc: The kinds of memory with ECC counters: HBM on 910B and A3, DDR on 310P, both on 910.
        idle_power_deciwatt: In 0.1 W; of the whole card where its MCU reports it.
        idle_temperature: In degrees Celsius.
        network_health: Whether the chip has a RoCE port whose health can be asked.
        utilization: The DCMI utilisation types that have an answer.
    """

    type: ShortText
    name: ShortText
    version: ShortText
    npu_name: ShortText
    ai_cores: U32
    ai_cpus: U32
    hbm: MemoryFacts | None = None
    ddr: MemoryFacts | None = None
    ecc: list[Literal["ddr", "hbm"]]
    idle_power_deciwatt: U32
    idle_temperature: U32
    network_health: bool
    utilization: list[Annotated[int, Field(ge=0, le=15)]]


class BoardFacts(_Strict):
    """The board that carries the chips.

    Attributes:
        mainboard_id: `None` where the call is not supported (all but 910B, A3 and 950).
        mcu: Whether each card has a management chip behind its NPUs (device id = chips per card).
        power_by: What reports the power: each chip, or (310P) the card's MCU for all its chips.
        vnpu_details: Whether vNPU queries report memory and AI CPUs (all but 910A).
        die_type: The die whose id can be read: the vector die up to A3, another one on 950.
        product_type: `None` where the call is not supported (910, 910B, A3).
        multi_die_policy: The policy of cards with two dies; `None` where it does not exist.
    """

    board_id: HexId
    pcb_id: HexId
    bom_id: HexId
    mainboard_id: HexId | None = None
    mcu: bool
    power_by: Literal["chip", "mcu"]
    vnpu_details: bool
    die_type: Literal["vdie", "ddie"]
    product_type: Text | None = None
    multi_die_policy: Literal["union", "independent"] | None = None


class PciIds(_Strict):
    """The four ids of each chip's PCI function, or its four ids on the unified bus."""

    vendor: HexId
    device: HexId
    subvendor: HexId
    subdevice: HexId


class Elabel(_Strict):
    """The electronic label; serial numbers are the device's."""

    product: Text
    model: Text
    manufacturer: Text
    date: Text


class Links(_Strict):
    """How two chips are linked: between cards, within one, and between groups of cards.

    Attributes:
        between_cards: Link of two cards.
        within_card: Link of two chips on a card; `None` where a card has one.
        group_size: How many chips of consecutive physical ids are linked so; `None`: all.
        between_groups: Link of two chips of different groups.
    """

    between_cards: Link
    within_card: Link | None = None
    group_size: Annotated[int, Field(ge=1)] | None = None
    between_groups: Link = "sys"


class SuperPod(_Strict):
    """The super pod this server belongs to (A3)."""

    size: U32
    id: U32
    type: U32
    server_index: U32
    chassis_id: U32


class DeviceFacts(_Strict):
    """One chip.

    Attributes:
        card_id: Hosts have been seen whose ids begin at 32 and at 32768.
        pci: Address such as `0000:c1:00.0`; both chips of a 300I Duo have the same. Empty for a
            chip that is on no PCI bus (310B; 950 on the UB).
        pci_root_port: The path above it in sysfs, such as `pci0000:c0/0000:c0:00.0`.
        numa_node: `None` where firmware does not say (sysfs shows -1, DCMI assumes node 0).
        die_id: Five words of eight upper-case hex digits.
        serial_number: If absent, made from the physical id.
        memory_mb: Overrides the chip's memory: the two chips of a Duo differ.
        sdid: The chip's id in the super pod.
        ip: Address and prefix length of the RoCE port; `None` where none is set.
    """

    physical_id: Annotated[int, Field(ge=0, le=99)]
    card_id: Annotated[int, Field(ge=0, lt=1 << 31)]
    device_id: Annotated[int, Field(ge=0, le=3)]
    pci: PciAddress = ""
    pci_root_port: PciRootPort = ""
    numa_node: Annotated[int, Field(ge=0)] | None = None
    die_id: Annotated[list[Word], Field(min_length=5, max_length=5)]
    serial_number: Text | None = None
    memory_mb: U32 | None = None
    sdid: U32 | None = None
    ip: IPv4Interface | None = None


class Profile(_Strict):
    """A whole board.

    Attributes:
        sources: Where the figures come from, by topic.
        generation: Of the calls that serve the chips: 1 `dcmi_*`, 2 `dcmiv2_*` (950).
        shared_nodes: The Ascend driver's device nodes besides those of the chips, below `/dev`.
        links: `None` where topology calls are not supported (310P).
        hccs: Whether chips report their HCCS lanes.
        unsupported: Functions that the board does not offer, besides those that follow from facts
            above; they return -8255 until a rule says otherwise.
        cpus: CPU list of each NUMA node; if it is empty, the CPU affinity call is not supported
            (all but 910B, A3 with main board 0x15, and 950).
    """

    name: str
    title: str
    sources: dict[str, str]
    driver_version: Text
    dcmi_version: Text
    generation: Literal[1, 2] = 1
    shared_nodes: tuple[NodeName, ...] = ("davinci_manager", "devmm_svm", "hisi_hdc")
    chip: ChipFacts
    board: BoardFacts
    pci: PciIds
    elabel: Elabel
    links: Links | None = None
    hccs: bool
    super_pod: SuperPod | None = None
    unsupported: list[Annotated[str, Field(max_length=63)]] = Field(default_factory=list)
    cpus: dict[Annotated[int, Field(strict=False)], Text] = Field(default_factory=dict)
    devices: Annotated[list[DeviceFacts], Field(min_length=1, max_length=MAX_DEVICES)]

    @model_validator(mode="after")
    def _each_chip_once(self) -> Self:
        physical = [device.physical_id for device in self.devices]
        if sorted(set(physical)) != physical:
            raise ValueError("devices.physicalId: must ascend, each number once")
        places = {(device.card_id, device.device_id) for device in self.devices}
        if len(places) != len(physical):
            raise ValueError("devices: two have the same cardId and deviceId")
        dies = {tuple(device.die_id) for device in self.devices}
        if len(dies) != len(physical):
            raise ValueError("devices.dieId: two devices have the same")
        if any(bool(device.pci) != bool(device.pci_root_port) for device in self.devices):
            raise ValueError("devices: pci and pciRootPort go together")
        return self


def of_server(profile: Profile, number: int, *, super_pod: int | None = None) -> Profile:
    """The board of one of several servers, with addresses and ids of its own.

    Args:
        profile: What all of them have.
        number: The server's, from 0 to 255; also its index in its super pod.
        super_pod: The id of its super pod, if it is another than the profile's.

    Raises:
        ConfigError: The number is too large, or the board is in no super pod.
    """
    if not 0 <= number <= LAST_SERVER:
        raise ConfigError(f"--server={number}: a number from 0 to {LAST_SERVER} is needed")
    pod = profile.super_pod
    if super_pod is not None and pod is None:
        raise ConfigError(f"--super-pod={super_pod}: {profile.name} is in no super pod")
    if pod is not None:
        update = {"server_index": number, "id": pod.id if super_pod is None else super_pod}
        pod = pod.model_copy(update=update)
    devices = [_of_server(device, number) for device in profile.devices]
    return profile.model_copy(update={"super_pod": pod, "devices": devices})


def _of_server(device: DeviceFacts, number: int) -> DeviceFacts:
    first, *others = device.die_id
    update: dict[str, object] = {
        "die_id": [f"{int(first, 16) + (number << 16) & 0xFFFF_FFFF:08X}", *others],
        "serial_number": f"SIM{number:04d}{device.physical_id:04d}",
    }
    if device.sdid is not None:
        update["sdid"] = number << SDID_SERVER | device.sdid & (1 << SDID_SERVER) - 1
    if device.ip is not None:
        host = int(device.ip.ip) & 0xFFFF
        address = IPv4Address(f"10.{number}.0.0") + host
        update["ip"] = IPv4Interface((address, device.ip.network.prefixlen))
    return device.model_copy(update=update)


def profile_names() -> list[str]:
    """The names of the profiles that ship with the package."""
    return sorted(path.stem for path in PROFILES.glob("*.json"))


def load_profile(name: str | Path) -> Profile:
    """Read a profile that ships with the package, by name, or another one by its path.

    Raises:
        ConfigError: There is none of that name, or a field is wrong; the message names it.
    """
    path = name if isinstance(name, Path) else PROFILES / f"{name}.json"
    known = ", ".join(profile_names())
    with translated(
        f"read {path}",
        lambda text: ConfigError(f"no simulator profile {name}: {text}; there are: {known}"),
    ):
        text = path.read_text()
    try:
        return Profile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "profile"
        raise ConfigError(f"simulator profile {path}: {place}: {first['msg']}") from error
