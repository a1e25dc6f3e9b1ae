"""Which claims hold an NPU, as others refer to them."""

from __future__ import annotations

from trio_npu_dra.claims.records import Records
from trio_npu_dra.kube.objects import ObjectReference, ResourceClaim


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
        for record in records.by_uid.values()
        if any(held.device == device and not held.admin_access for held in record.devices)
    ]
