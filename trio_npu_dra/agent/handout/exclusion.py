"""Refuses devices of other holders, to claims and to pods of a device plugin alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trio_npu_dra.agent.handout.cdi import CdiFolder
from trio_npu_dra.agent.holds.hold import Hold, HolderKind, conflict, node_of_pod
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.base.errors import DeviceHeld

_ENDS: Final = {
    HolderKind.POD: "it has ended",
    HolderKind.LEFTOVER: "that is removed",
}
"""What frees a holder's devices; for a claim it is the end of its pods."""


def refuse_if_held(hold: Hold, others: Iterable[Hold], ledger: Ledger, cdi: CdiFolder) -> None:
    """Refuse a new hold that another one excludes; inside the critical section.

    Args:
        hold: The new hold.
        others: The holds of other holders.
        ledger: Knows the claims whose records cannot be read.
        cdi: The CDI files, which name the devices of such claims.

    Raises:
        DeviceHeld: Another holder has the device, or may have it.
        StorageError: A CDI file cannot be read.
    """
    other = conflict(hold, others)
    if other is not None:
        part = f", which has {other.device}," if other.device != hold.device else ""
        raise DeviceHeld(
            f"device {hold.device} is held by {other.holder.described}{part} until "
            f"{_ENDS.get(other.holder.kind, 'its pods have ended')}",
            holder=other.holder.uid,
        )
    if hold.observer:
        return
    unreadable = ledger.unreadable - {hold.holder.uid}
    if not unreadable:
        return
    own = {hold.partition.device_node} if hold.partition else set()
    for uid in unreadable & cdi.scan().keys():  # one read of the folder, not one for each claim
        if cdi.hands_out(uid, hold.nodes | own):
            raise DeviceHeld(
                f"device {hold.device} may be in use by the claim with UID {uid}, whose "
                "record on the node cannot be read, until its pods have ended; if there are none, "
                f"an administrator of the node removes {cdi.path(uid)}"
            )
    if hold.holder.kind is HolderKind.POD:
        return  # the kubelet decides which pod gets a chip of a resource
    for uid in unreadable:
        if node_of_pod(uid) in hold.nodes:
            raise DeviceHeld(
                f"device {hold.device} may be in use by a pod of a device plugin, whose record "
                f"{uid} on the node cannot be read, until the kubelet says that it has ended"
            )
