"""Who holds an NPU, in the words of Events and reports."""

from __future__ import annotations

from pathlib import Path

from tests.claims.test_records import device, record
from trio_npu_dra.claims.holders import held_devices, holders
from trio_npu_dra.claims.records import Records
from trio_npu_dra.kube.objects import ObjectReference


async def test_holders_are_claims_that_have_a_device_for_themselves(tmp_path: Path) -> None:
    """Each is referred to as the object it is; one that looks on holds nothing."""
    records = Records(tmp_path / "driver")
    async with records.exclusive():
        records.put(record("train", device("npu-0"), device("npu-1")))
        records.put(record("watch", device("npu-0", admin_access=True)))

    found = [(name, holder.uid) for name, holder in held_devices(records)]
    assert found == [("npu-0", "train"), ("npu-1", "train")]
    reference = ObjectReference(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        namespace="default",
        name="train",
        uid="train",
    )
    assert holders(records, "npu-0") == holders(records, "npu-1") == [reference]
    assert holders(records, "npu-2") == []
