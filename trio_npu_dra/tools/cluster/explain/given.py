"""What a claim has, and how its devices are now."""

from __future__ import annotations

from collections.abc import Mapping

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.kit.api.objects import AllocationResult, Device
from trio_npu_dra.tools.cluster.explain.explanation import ClaimReport, GivenDevice
from trio_npu_dra.tools.cluster.inventory import DeviceId, PlacedDevice, devices_of, newest
from trio_npu_dra.tools.cluster.matching import taint_words
from trio_npu_dra.tools.cluster.objects import Claim
from trio_npu_dra.tools.cluster.view import ClusterView

_FACTS = (
    fact_names.CHIP_NAME,
    fact_names.PRODUCT_NAME,
    fact_names.TEMPLATE,
    fact_names.TOPOLOGY_GROUP,
)


def published(view: ClusterView) -> Mapping[DeviceId, PlacedDevice]:
    """All devices of the newest generation of each pool."""
    slices = (slice_ for found in newest(view.slices).values() for slice_ in found)
    return {placed.id: placed for placed in devices_of(slices)}


def given_report(claim: Claim, devices: Mapping[DeviceId, PlacedDevice]) -> ClaimReport:
    """What a claim has, if it is allocated."""
    allocation = claim.status.allocation
    if allocation is None:
        return ClaimReport(title=claim.title, state="is not allocated")
    users = [one.name for one in claim.status.reserved_for]
    used = f"used by {', '.join(users)}" if users else "no pod uses it now"
    count = len(allocation.devices.results)
    return ClaimReport(
        title=claim.title,
        state=f"has {count} device{'' if count == 1 else 's'}; {used}",
        given=tuple(_given(result, devices) for result in allocation.devices.results),
    )


def _given(result: AllocationResult, devices: Mapping[DeviceId, PlacedDevice]) -> GivenDevice:
    name = DeviceId(result.driver, result.pool, result.device)
    placed = devices.get(name)
    how = "with admin access" if result.admin_access else ""
    if result.share_id:
        amounts = result.consumed_capacity.items()
        how = "a share: " + ", ".join(f"{key} {amount}" for key, amount in sorted(amounts))
    now = "is not published any more"
    if placed is not None:
        now = ", ".join(taint_words(taint) for taint in placed.device.taints)
    return GivenDevice(
        request=result.request,
        device=name,
        facts=_facts(placed.device) if placed else "",
        how=how,
        now=now,
    )


def _facts(device: Device) -> str:
    """`910B4, ring-0, memCapacity 32Gi`."""
    facts = [device.attributes[name].value for name in _FACTS if name in device.attributes]
    named = [f"{name} {one.value}" for name, one in sorted(device.capacity.items())]
    return ", ".join((*(str(value) for value in dict.fromkeys(facts)), *named))
