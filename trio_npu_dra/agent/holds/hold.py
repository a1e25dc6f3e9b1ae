"""Holds, and the one rule that says which of them exclude each other. Pure."""

import re
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from trio_npu_dra.ascend.partition import Partition


class HolderKind(StrEnum):
    """Kinds of holders, named as in the API."""

    CLAIM = "ResourceClaim"
    POD = "Pod"
    """A pod with devices of a device plugin."""
    LEFTOVER = "Leftover"
    """A vNPU that could not be removed when its claim ended."""


POD_PREFIX: Final = "pod-of-"
"""Begins the UIDs that this driver makes up for pods, before the chip's name; no claim's does."""
_POD: Final = re.compile(rf"{POD_PREFIX}npu-([0-9]{{1,9}})(-.*)?", re.ASCII)


def node_of_pod(uid: str) -> str | None:
    """The host's device node of a pod's chip, from the pod's made-up UID; None for a claim."""
    found = _POD.fullmatch(uid)
    return None if found is None else f"/dev/davinci{found[1]}"


class Holder(NamedTuple):
    """An object of the API that holds chips.

    Attributes:
        kind: Of the object.
        namespace: Its namespace.
        name: Its name; empty for a pod that the kubelet has not named yet.
        uid: Identifies it. The kubelet tells no UIDs of pods, so a pod is a holder for each of its
            chips, with a UID that this driver makes up.
    """

    kind: HolderKind
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}" if self.name else "a pod of a device plugin"

    @property
    def titled(self) -> str:
        """Kind, namespace and name."""
        if self.kind is HolderKind.POD:
            return f"pod {self}" if self.name else str(self)
        if self.kind is HolderKind.LEFTOVER:
            return f"what claim {self} left"
        return f"claim {self}"

    @property
    def described(self) -> str:
        """Kind, namespace, name, and the UID of a claim, which tells it from one of that name."""
        return self.titled if self.kind is HolderKind.POD else f"{self.titled} (UID {self.uid})"


class SharedClaim(NamedTuple):
    """A claim that several pods have.

    Attributes:
        holder: The claim.
        devices: Its devices of this driver, without those of admin access and those that are made
            for several pods: shares, and devices that its config shares.
        pods: Their names, sorted, after `PodGroup NAME` for all pods of one.
    """

    holder: Holder
    devices: tuple[str, ...]
    pods: tuple[str, ...]


class Hold(NamedTuple):
    """One device that a holder has.

    Attributes:
        holder: Claim or pod.
        device: Its name in the pool, for people; names are never compared, for a chip can go by
            several.
        nodes: The host device nodes of its chips, such as `/dev/davinci3`.
        observer: Whether the holder has admin access, which excludes nobody.
        share: The share of the device, where several holders have one each.
        partition: The partition of its chip; None for all of its chips.
    """

    holder: Holder
    device: str
    nodes: frozenset[str]
    observer: bool = False
    share: str | None = None
    partition: Partition | None = None

    @property
    def is_of_pod(self) -> bool:
        """Whether the device plugin handed it out."""
        return self.holder.kind is HolderKind.POD


def conflict(hold: Hold, others: Iterable[Hold]) -> Hold | None:
    """The first of *others* that excludes *hold*.

    Two holds of different holders exclude each other if neither has admin access and they have a
    chip in common; so a module excludes its dies.
    """
    return next((other for other in others if _excludes(other, hold)), None)


def _excludes(one: Hold, other: Hold) -> bool:
    if one.holder.uid == other.holder.uid or one.observer or other.observer:
        return False
    if one.nodes == other.nodes and None not in {one.share, other.share}:
        # Shares of claims and shares of pods are counted apart, so the two do not mix on a chip.
        return one.share == other.share or one.is_of_pod != other.is_of_pod
    if (
        one.partition is not None
        and other.partition is not None
        and not one.partition.is_same(other.partition)
    ):
        return False  # whether a chip has room for both is for the scheduler to count
    return not one.nodes.isdisjoint(other.nodes)


def holds_of(nodes: Collection[str], holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """The holds on a chip of *nodes*, except those with admin access."""
    return tuple(hold for hold in holds if not hold.observer and not hold.nodes.isdisjoint(nodes))


def vnpu_holders(holds: Iterable[Hold]) -> dict[int, Holder]:
    """The holder of each vNPU, by the vNPU's id."""
    return {
        hold.partition.vnpu: hold.holder
        for hold in holds
        if hold.partition is not None and hold.partition.vnpu is not None and not hold.observer
    }


def vnpus_of(holds: Iterable[Hold]) -> frozenset[int]:
    """The ids of the vNPUs that were cut, or are being cut, for holders."""
    return frozenset(
        hold.partition.vnpu
        for hold in holds
        if hold.partition is not None
        and hold.partition.on_demand
        and hold.partition.vnpu is not None
    )
