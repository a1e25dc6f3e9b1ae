"""Who has what, and the one rule that says whether two can have it at once; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from trio_npu_dra.ascend.partition import Partition


class HolderKind(StrEnum):
    """What can hold chips, in the API's words."""

    CLAIM = "ResourceClaim"
    POD = "Pod"
    """A pod with devices of a device plugin."""
    LEFTOVER = "Leftover"
    """A claim that has let go, and a vNPU of it that could not be removed yet."""
    OTHER = "Other"
    """Something that only a newer version of this driver knows."""


POD_PREFIX: Final = "pod-of-"
"""What the names of ours for pods begin with, before that of the chip; no UID of a claim does."""
_POD: Final = re.compile(rf"{POD_PREFIX}npu-([0-9]{{1,9}})(-.*)?", re.ASCII)


def node_of_pod(uid: str) -> str | None:
    """The host's device node of the chip that a pod has, by our name for it; None for a claim."""
    found = _POD.fullmatch(uid)
    return None if found is None else f"/dev/davinci{found[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """An object of the API that holds chips.

    Attributes:
        kind: What it is.
        namespace: Its namespace.
        name: Its name; empty for a pod that the kubelet has not named yet.
        uid: Its UID; holders are told apart by it. The kubelet tells no UIDs of pods: for each
            chip that a pod has there is a holder, with a name of ours.
    """

    kind: HolderKind
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """The name people know it by."""
        return f"{self.namespace}/{self.name}" if self.name else "a pod of a device plugin"

    @property
    def titled(self) -> str:
        """What it is, and the name people know it by."""
        if self.kind is HolderKind.POD:
            return f"pod {self}" if self.name else str(self)
        if self.kind is HolderKind.LEFTOVER:
            return f"what claim {self} left"
        return f"claim {self}"

    @property
    def described(self) -> str:
        """The same, and what tells claims of one name apart."""
        return self.titled if self.kind is HolderKind.POD else f"{self.titled} (UID {self.uid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedClaim:
    """A claim that several pods have.

    Attributes:
        holder: The claim.
        devices: Its devices of this driver, without those of admin access and those that are made
            for several pods: shares, and devices that its config shares.
        pods: Their names, sorted.
    """

    holder: Holder
    devices: tuple[str, ...]
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One device that somebody has.

    Attributes:
        holder: Who has it.
        device: Its name in the pool, for people; names are never compared, for a chip can go by
            several.
        nodes: The host device nodes of its chips, such as `/dev/davinci3`.
        observer: Whether the holder only looks on (admin access), which keeps nobody away.
        share: Which share of the device it is, where several holders have one each.
        partition: Which partition of its chip it is; None for all of its chips.
    """

    holder: Holder
    device: str
    nodes: frozenset[str]
    observer: bool = False
    share: str | None = None
    partition: Partition | None = None


def conflict(hold: Hold, others: Iterable[Hold]) -> Hold | None:
    """The first of *others* that keeps the holder of *hold* from having it.

    Holds conflict when they are of two holders, neither of which only looks on, and have a chip in
    common; a module conflicts with its dies so. Two shares of the same chips do not if they are
    both of claims, or both of pods, which count them each by themselves. Nor do two different
    partitions of one chip: whether there is room for both is for the scheduler to count.
    """
    return next((other for other in others if _excludes(other, hold)), None)


def holds_of(nodes: Collection[str], holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """Those of *holds* that have a chip of *nodes*; who only looks on has none."""
    return tuple(hold for hold in holds if not hold.observer and not hold.nodes.isdisjoint(nodes))


def vnpu_holders(holds: Iterable[Hold]) -> dict[int, Holder]:
    """Who has which vNPU, by its id."""
    return {
        hold.partition.vnpu: hold.holder
        for hold in holds
        if hold.partition is not None and hold.partition.vnpu is not None and not hold.observer
    }


def vnpus_of(holds: Iterable[Hold]) -> frozenset[int]:
    """The ids of the vNPUs that were cut, or are being cut, for somebody."""
    return frozenset(
        hold.partition.vnpu
        for hold in holds
        if hold.partition is not None
        and hold.partition.on_demand
        and hold.partition.vnpu is not None
    )


def _excludes(one: Hold, other: Hold) -> bool:
    if one.holder.uid == other.holder.uid or one.observer or other.observer:
        return False
    if one.nodes == other.nodes and None not in {one.share, other.share}:
        return one.share == other.share or _is_of_pod(one) != _is_of_pod(other)
    if (
        one.partition is not None
        and other.partition is not None
        and not one.partition.is_same(other.partition)
    ):
        return False
    return not one.nodes.isdisjoint(other.nodes)


def _is_of_pod(hold: Hold) -> bool:
    return hold.holder.kind is HolderKind.POD
