"""One holder in the ledger: its devices, their allocation, and how far preparing them got."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from trio_npu_dra.agent.config.model import DEFAULT_CONFIG, EffectiveConfig
from trio_npu_dra.agent.holds.hold import Hold, Holder
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.base.device_metadata import Documents


class EntryState(StrEnum):
    """How far preparing or undoing got. A holder without an entry has nothing."""

    INTENDED = "intended"
    READY = "ready"
    UNDOING = "undoing"


class Allocated(NamedTuple):
    """A device as the scheduler allocated it; a claim with an equal allocation is answered again.

    Attributes:
        requests: Names of the requests it serves, without subrequests; in order of the allocation.
        pool: The pool it was allocated from.
        device: Its name in the pool.
        admin_access: Whether the holder has admin access.
        share_id: Its share, where the device is allocated several times.
        config: The effective config, equal for all accesses to the device.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    config: EffectiveConfig = DEFAULT_CONFIG


class HeldDevice(NamedTuple):
    """A held device, with all that CDI edits and undoing need when no chip answers.

    Attributes:
        device: Its name in the pool.
        family: The generation of its chips.
        nodes: Device nodes: the container's path to the host's path. A partition that is not cut
            yet has none.
        chips: Its chips as they were when it was allocated, without health; at least one.
        config: That of its allocation.
        partition: The partition of its chip; None for all of its chips.
        chip_node: The host's device node of a partition's chip; empty without a partition.
    """

    device: str
    family: ChipFamily
    nodes: Mapping[str, str]
    chips: tuple[Chip, ...]
    config: EffectiveConfig = DEFAULT_CONFIG
    partition: Partition | None = None
    chip_node: str = ""

    @property
    def held_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips; holds are compared by them."""
        return frozenset({self.chip_node} if self.partition else self.nodes.values())


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One holder's record.

    Attributes:
        holder: Claim or pod.
        state: How far it got.
        allocation: As the scheduler made it.
        devices: Each device of the allocation once, in its order.
        steps: Names of the steps that were begun, in order. While the entry is *intended* the last
            may be half done; while it is *undoing*, any.
        edits: The CDI spec that containers get; None for pods, which have one file together, and
            for leftovers.
        metadata: What containers can read of its devices.
        boot_id: The boot of the node in which it was written; empty when unknown.
        doubted: Whether it is a suspected orphan: the last look found no pod or claim that needs it
            (`claims.orphans`), and no call has prepared it since.
    """

    holder: Holder
    state: EntryState
    allocation: tuple[Allocated, ...]
    devices: tuple[HeldDevice, ...]
    steps: tuple[str, ...] = ()
    edits: Mapping[str, Any] | None = None
    metadata: Documents = field(default_factory=dict)
    boot_id: str = ""
    doubted: bool = False

    @property
    def uid(self) -> str:
        """The holder's UID."""
        return self.holder.uid

    def __str__(self) -> str:
        """The holder's name."""
        return str(self.holder)

    @property
    def device_names(self) -> list[str]:
        """The devices' names, for log lines."""
        return [device.device for device in self.devices]

    @property
    def outlasts_boot(self) -> bool:
        """Whether vNPUs that were cut for it may exist again after a reboot."""
        return any(device.partition and device.partition.on_demand for device in self.devices)

    @cached_property
    def given_nodes(self) -> tuple[str, ...]:
        """The host's device nodes that its containers get, as far as they are known."""
        return tuple(host_nodes(self.edits))

    @cached_property
    def holds(self) -> tuple[Hold, ...]:
        """One for each device, and for each share of it. Own access wins over admin access."""
        found: list[Hold] = []
        for device in self.devices:
            given = [each for each in self.allocation if each.device == device.device]
            own = [each for each in given if not each.admin_access]
            hold = Hold(
                holder=self.holder,
                device=device.device,
                nodes=device.held_nodes,
                observer=not own,
                partition=device.partition,
            )
            found += [hold._replace(share=each.share_id) for each in own] or [hold]
        return tuple(found)


def host_nodes(spec: Any) -> Iterator[str]:
    """The host's device nodes in a CDI spec, of this version or another one."""
    if isinstance(spec, list):
        for item in spec:
            yield from host_nodes(item)
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key == "deviceNodes" and isinstance(value, list):
                paths = (node.get("hostPath") for node in value if isinstance(node, dict))
                yield from (path for path in paths if isinstance(path, str))
            else:
                yield from host_nodes(value)
