"""Which claims hold an NPU, as others refer to them."""

from __future__ import annotations

from collections.abc import Iterator

from trio_npu_dra.claims.record import ClaimRecord
from trio_npu_dra.claims.records import Records
from trio_npu_dra.kube.objects import ObjectReference, ResourceClaim


def held_devices(records: Records) -> Iterator[tuple[str, ClaimRecord]]:
    """Each device that a claim is prepared with for itself, with the claim; who looks on is none.

    Args:
        records: Of the node.
    """
    for record in records.by_uid.values():
        for held in record.devices:
            if not held.admin_access:
                yield held.device, record


def holders(records: Records, device: str) -> list[ObjectReference]:
    """The claims that are prepared with *device* for themselves, as of their records.

    Args:
        records: Of the node.
        device: The device's name in the node's pool.
    """
    return [
        ObjectReference(
            api_version=ResourceClaim.group_version,
            kind=ResourceClaim.kind_name,
            namespace=record.claim.namespace,
            name=record.claim.name,
            uid=record.uid,
        )
        for held, record in held_devices(records)
        if held == device
    ]
