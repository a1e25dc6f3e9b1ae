"""What the API server does with the status of claims, of which several drivers write a part."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import (
    Condition,
    DeviceStatus,
    NetworkDeviceData,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    rfc3339,
)
from trio_npu_dra.kit.base.errors import Invalid, NotFound

NPU, GPU = "npu.example.com", "gpu.example.com"
ALLOCATED = [{"request": "a", "pool": "n", "driver": NPU, "device": f"npu-{n}"} for n in (0, 1)] + [
    {"request": "a", "pool": "n", "driver": GPU, "device": "gpu-0"}
]


class _Claim(ResourceClaim):
    """A claim with its spec."""

    spec: Any


def device(name: str, driver: str = NPU, **more: Any) -> DeviceStatus:
    """What a driver says of a device."""
    ready = Condition(
        type="Ready", status="True", reason="Healthy", last_transition_time=rfc3339(0)
    )
    said: dict[str, Any] = {"conditions": (ready,), "data": {"kind": "Some", "a": [1]}} | more
    return DeviceStatus(driver=driver, pool="n", device=name, **said)


async def devices_of_a_claim_have_a_status_each(client: KubeClient) -> None:
    """A driver's own are those that it applied last; those of others and the allocation stay.

    They need no share where the allocation has none, and go when the allocation goes.
    """
    meta = ObjectMeta(name=f"claim-{uuid.uuid4()}", namespace="default")
    request = {"name": "a", "exactly": {"deviceClassName": "none.example.com"}}
    made = await client.create(_Claim(metadata=meta, spec={"devices": {"requests": [request]}}))
    own = ObjectMeta(name=meta.name, namespace="default", uid=made.metadata.uid)

    async def apply(manager: str, meta: ObjectMeta = own, **status: Any) -> ResourceClaimStatus:
        wanted = ResourceClaim(metadata=meta, status=ResourceClaimStatus.model_validate(status))
        await client.apply(wanted, manager=manager, subresource="status")
        return (await client.get(ResourceClaim, meta.name, "default")).status

    async def said(manager: str, *devices: DeviceStatus) -> set[str]:
        return {one.device for one in (await apply(manager, devices=devices)).devices}

    allocated = await apply("scheduler", allocation={"devices": {"results": ALLOCATED}})
    assert await said(GPU, device("gpu-0", GPU)) == {"gpu-0"}
    address = NetworkDeviceData(interface_name="eth0", ips=("10.0.0.1/24",), hardware_address="a")
    npus = device("npu-0", network_data=address), device("npu-1")
    assert await said(NPU, *npus) == {"gpu-0", "npu-0", "npu-1"}
    found = await client.get(ResourceClaim, meta.name, "default")
    assert found.status.devices[1:] == npus
    assert found.status.allocation == allocated.allocation
    assert await said(NPU, device("npu-1")) == {"gpu-0", "npu-1"}
    unreasoned = {"type": "a", "status": "True", "lastTransitionTime": rfc3339(0)}
    share = device("npu-1", share_id=str(uuid.uuid4()))
    knows_shares = await client.minor_version() >= 36
    for wrong, words in (
        (device("npu-7"), "must be an allocated device in the claim"),
        (device("npu-1", network_data={"ips": ["10.0.0.1"]}), "must be a valid address in CIDR"),
        (device("npu-1", data="x" * 10240), "data: Too long: may not be more than 10240 bytes"),
        (device("npu-1", conditions=[unreasoned]), "conditions[0].reason: Required value"),
        *([(share, "must be an allocated device in the claim")] if knows_shares else []),
    ):
        with pytest.raises(Invalid, match=re.escape(words)):
            await said(NPU, wrong)
    with pytest.raises(Invalid, match=r"metadata\.uid: .* field is immutable"):
        await apply(NPU, meta.model_copy(update={"uid": str(uuid.uuid4())}))
    with pytest.raises(NotFound, match='"absent" not found'):
        await apply(NPU, ObjectMeta(name="absent", namespace="default", uid=own.uid))
    assert await apply("scheduler") == ResourceClaimStatus()
    await client.delete(ResourceClaim, meta.name, "default")
