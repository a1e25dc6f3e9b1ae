"""Which chips are in a resource, given who holds them; pure.

A chip that is moving belongs neither to a resource nor to the DRA pool (`holds.availability`) until
no claim, no pod and no unknown process has it. So it is never given out twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from trio_npu_dra.agent.device_plugin.device import DevicesByResource, ResourceDevice
from trio_npu_dra.agent.device_plugin.names import partition_resource, whole_resource
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, holds_of
from trio_npu_dra.ascend.dcmi.types import VnpuMode
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.partition import Partition


def elsewhere(
    board: Board, selection: Selection, *, leaving: Collection[int] = ()
) -> frozenset[str]:
    """Device nodes of the chips that are not for the DRA pool, for `holds.availability`.

    Chips whose physical ids are in *leaving* were in a resource, and may still be in use.
    """
    return frozenset(
        chip.device_node
        for chip in board.chips
        if selection.resource_of(chip) is not None or chip.physical_id in leaving
    )


def resource_devices(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    given: Collection[ResourceDevice],
    unused: AbstractSet[str],
) -> DevicesByResource:
    """The devices of each resource, by physical id; a resource without free chips has none.

    A chip is there whole, in shares, or in the vNPUs that were created on it manually. Beside parts
    that pods have there is nothing else of the chip until they are released: neither the chip
    beside shares, nor more shares beside those of an earlier number.

    Args:
        board: The chips.
        holds: Of claims and pods.
        selection: The operator's.
        given: The devices that pods have.
        unused: Device nodes of chips that no process used when we checked.
    """
    # A resource stays, without devices if need be, while a pod has one of its devices. Five minutes
    # after the last plugin of a resource has gone, the kubelet starts no more containers of pods
    # that name it ("endpoint not found in cache for a registered resource"; Kubernetes 1.36.3), not
    # even of a pod that has its NPUs by DRA; while a plugin lists none, it does.
    found: dict[str, list[ResourceDevice]] = {one.resource: [] for one in given}
    for chip in board.chips:
        resource = selection.resource_of(chip)
        if resource is None:
            continue
        found.setdefault(resource, [])
        holders = holds_of({chip.device_node}, holds)
        mine = [one for one in given if one.chip.device_node == chip.device_node]
        is_claimed = any(hold.holder.kind is not HolderKind.POD for hold in holders)
        is_free = chip.device_node in unused and not chip.gone and not holders
        if is_claimed or not (mine or is_free):
            continue
        if chip.vnpus:
            used = {one.id for one in chip.vdevices if one.in_use}  # if by a pod, it is in *mine*
            wanted = [
                one
                for one in partitions_of(board, chip, resource)
                if one.partition is None or one.partition.vnpu not in used
            ]
        else:
            whole, shares = ResourceDevice(resource=resource, chip=chip), selection.shares_of(chip)
            wanted = [replace(whole, share=one) for one in range(shares)] if shares > 1 else [whole]
        for device in _beside(wanted, mine, chip, resource):
            found.setdefault(device.resource, []).append(device)
    return {resource: tuple(devices) for resource, devices in found.items()}


def partitions_of(board: Board, chip: Chip, resource: str) -> list[ResourceDevice]:
    """The vNPUs of a chip that no claim has, where a resource can name them."""
    if board.vnpu_mode is VnpuMode.VIRTUAL_MACHINE:
        return []
    return [
        ResourceDevice(
            resource=of_partition,
            chip=chip,
            partition=Partition(template=one.template, vnpu=one.id),
        )
        for one in chip.vdevices
        if (of_partition := partition_resource(resource, one.template)) is not None
    ]


def _beside(
    wanted: Collection[ResourceDevice], mine: Collection[ResourceDevice], chip: Chip, resource: str
) -> list[ResourceDevice]:
    """A chip's devices: *mine*, which pods have, and those *wanted* that may be beside these."""
    held = {
        (one.resource, one.id): replace(one, chip=chip)
        for one in mine
        if whole_resource(one.resource) == resource
    }
    ways = {(one.share, one.partition is None) for one in wanted}
    are_alike = len(held) == len(mine) and all(
        (one.share, one.partition is None) in ways for one in mine
    )
    found = {(one.resource, one.id): one for one in wanted if are_alike} | held
    return list(found.values())


def unclear(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    unused: AbstractSet[str],
    leaving: Collection[int] = (),
) -> tuple[Chip, ...]:
    """Chips that are to move and have no known holder, but may be used by a process."""
    return tuple(
        chip
        for chip in board.chips
        if (selection.resource_of(chip) is not None or chip.physical_id in leaving)
        and not chip.gone
        and chip.device_node not in unused
        and not holds_of({chip.device_node}, holds)
    )


def waiting(
    board: Board,
    holds: Collection[Hold],
    selection: Selection,
    *,
    given: Iterable[ResourceDevice],
    unclear: Collection[Chip],
) -> Mapping[str, str]:
    """Where chips are to go that are still elsewhere, and why they are not there; by name."""
    places = {one.holder_uid: whole_resource(one.resource) for one in given}
    unknown = {chip.name for chip in unclear}
    found = {}
    for chip in board.chips:
        goal = selection.resource_of(chip)
        elsewhere = [
            hold.holder.titled
            for hold in holds_of({chip.device_node}, holds)
            if places.get(hold.holder.uid) != goal
        ]
        why = "it is held by " + ", ".join(dict.fromkeys(elsewhere)) if elsewhere else ""
        if chip.name in unknown:
            why = "a process uses it that belongs to no known pod or claim"
        if why:
            found[chip.name] = f"to {goal or 'the DRA pool'}, but {why}"
    return found
