"""What the ledger knows of one holder: what it has, for which allocation, and how far that got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from trio_npu_dra.agent.config.effective import DEFAULT_CONFIG, EffectiveConfig
from trio_npu_dra.agent.holds.hold import Hold, Holder, HolderKind
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.partition import Partition


class EntryState(StrEnum):
    """How far a hold got. A holder without an entry has nothing."""

    INTENDED = "intended"
    READY = "ready"
    UNDOING = "undoing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """A device as the scheduler gave it to the holder; a hold answers for equal ones.

    Attributes:
        requests: Names of the requests it serves, without subrequests; in order of the allocation.
        pool: The pool it was allocated from.
        device: Its name in the pool.
        admin_access: Whether the holder only looks on.
        share_id: Which share of the device it is, where it is allocated several times.
        config: What the configs of claim and class come to, equal for all accesses to the device;
            None if only a newer version knows.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    config: EffectiveConfig | None = DEFAULT_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldDevice:
    """A held device, with all that CDI edits and undoing need when no chip answers.

    Attributes:
        device: Its name in the pool.
        family: The generation of its chips; None for one that this version does not know.
        nodes: Device nodes: the container's path to the host's path.
        chips: Its chips as they were when it was given out, their health left out. Empty if a newer
            version wrote facts of them that this one does not understand.
        config: That of its allocation.
        partition: Which partition of its chip it is; None for all of its chips. A partition that is
            not cut yet has no nodes.
        chip_node: The host's device node of the chip that a partition is of; empty without a
            partition.
    """

    device: str
    family: ChipFamily | None
    nodes: Mapping[str, str]
    chips: tuple[Chip, ...] = ()
    config: EffectiveConfig | None = DEFAULT_CONFIG
    partition: Partition | None = None
    chip_node: str = ""

    @property
    def shared(self) -> bool:
        """Whether several containers may use it at once."""
        return self.config is not None and self.config.shared

    @property
    def can_be_rendered(self) -> bool:
        """Whether this version knows what containers get with it."""
        return self.family is not None and self.config is not None

    @property
    def held_nodes(self) -> frozenset[str]:
        """The host device nodes of its chips, by which holds are compared."""
        return frozenset({self.chip_node} if self.partition else self.nodes.values())


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One holder's record.

    Attributes:
        holder: Who it is.
        state: How far it got.
        allocation: What it answers for.
        devices: What that gives, each device once, in order of the allocation.
        steps: Names of the steps that were begun, in order. While the hold is *intended* the last
            may be half done; while it is *undoing* so may be any.
        edits: The CDI spec that containers get; None if a newer version wrote another form of it.
        boot_id: The boot of the node it was written in; empty when unknown.
        doubted: Whether nobody seemed to need it at the last look (`claims.orphans`), and nobody
            has prepared it since.
        stored: The record as it was read, with what this version does not know of it.
    """

    holder: Holder
    state: EntryState
    allocation: tuple[Allocated, ...]
    devices: tuple[HeldDevice, ...]
    steps: tuple[str, ...] = ()
    edits: Mapping[str, Any] | None = None
    boot_id: str = ""
    doubted: bool = False
    stored: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def uid(self) -> str:
        """The holder's UID."""
        return self.holder.uid

    def __str__(self) -> str:
        """The name people know the holder by."""
        return str(self.holder)

    @property
    def knows_its_chips(self) -> bool:
        """Whether there are facts of all chips, but for those that only a newer version knows."""
        return all(device.chips or device.family is None for device in self.devices)

    @property
    def device_names(self) -> list[str]:
        """The devices' names, for log lines."""
        return [device.device for device in self.devices]

    @property
    def outlasts_boot(self) -> bool:
        """Whether something that was made for it may be there again after a reboot."""
        return any(device.partition and device.partition.on_demand for device in self.devices)

    def leftover(self, device: HeldDevice, vnpu: int, *, step: str) -> Entry:
        """A record for one vNPU of the holder that cannot be removed with the rest.

        The holder is free of it then, and may be given the same again.

        Args:
            device: The partition that it is.
            vnpu: Its id.
            step: What removes it.
        """
        uid = f"vnpu-{vnpu}-of-{self.uid}"
        return Entry(
            holder=replace(self.holder, kind=HolderKind.LEFTOVER, uid=uid),
            state=EntryState.UNDOING,
            allocation=tuple(one for one in self.allocation if one.device == device.device),
            devices=(device,),
            steps=(step,),
        )

    @cached_property
    def given_nodes(self) -> tuple[str, ...]:
        """The host's device nodes that its containers get; none where that is not known."""
        return tuple(host_nodes(self.edits))

    @cached_property
    def holds(self) -> tuple[Hold, ...]:
        """One for each device, and for each share of it. Own access wins over admin access."""
        return tuple(hold for device in self.devices for hold in self._holds_on(device))

    def _holds_on(self, device: HeldDevice) -> list[Hold]:
        given = [each for each in self.allocation if each.device == device.device]
        own = [each for each in given if not each.admin_access]
        hold = Hold(
            holder=self.holder,
            device=device.device,
            nodes=device.held_nodes,
            observer=bool(given) and not own,  # an allocation that is not understood guards
            partition=device.partition,
        )
        return [replace(hold, share=each.share_id) for each in own] or [hold]


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
