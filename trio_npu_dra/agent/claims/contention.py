"""Notices claims of several pods: one container at a time can open an NPU.

A claim names the pods or PodGroups for which it is reserved, so the driver needs no right to read
pods. Each read of a claim notices them: at prepare, and every ten minutes when `orphans` looks for
the claim. The kubelet does not call when a second pod uses a prepared claim.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trio_npu_dra.agent.claims.allocation import allocation_of
from trio_npu_dra.agent.holds.hold import Holder, HolderKind, SharedClaim
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import ClaimError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef


def shared_claim(claim: ResourceClaim, *, driver_name: str, pool_name: str) -> SharedClaim | None:
    """The devices that several pods of a claim contend for (pure); None without any.

    A PodGroup counts as several pods: the claim does not say how many it has.
    Devices that the claim's config shares are meant for several pods. A claim that cannot be
    prepared has no devices.
    """
    uid = claim.metadata.uid
    pods = sorted(claim.status.users("pods"))
    groups = sorted(f"PodGroup {name}" for name in claim.status.users("podgroups"))
    if (len(pods) < 2 and not groups) or not uid:
        return None
    ref = ClaimRef(namespace=claim.metadata.namespace or "", name=claim.metadata.name, uid=uid)
    try:
        allocation = allocation_of(claim, ref, driver_name=driver_name, pool_name=pool_name)
    except ClaimError:
        return None
    devices = dict.fromkeys(
        given.device
        for given in allocation
        if not given.admin_access and given.share_id is None
        if not given.config.shared
    )
    if not devices:
        return None
    holder = Holder(kind=HolderKind.CLAIM, namespace=ref.namespace, name=ref.name, uid=uid)
    return SharedClaim(holder=holder, devices=tuple(devices), pods=(*groups, *pods))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentionObserver:
    """Notes claims of several pods when they are read.

    Attributes:
        ledger: Claims outside of it are forgotten.
        shared: Set to the claims of several pods, by UID.
        driver_name: The driver of our results in an allocation.
        pool_name: The pool of this node.
    """

    ledger: Ledger
    shared: Observable[Mapping[str, SharedClaim]]
    driver_name: str
    pool_name: str

    def __call__(self, claim: ResourceClaim) -> None:
        """Note the pods of a claim."""
        uid = claim.metadata.uid or ""
        known = self.ledger.by_uid
        kept = {key: one for key, one in self.shared.value.items() if key in known and key != uid}
        found = shared_claim(claim, driver_name=self.driver_name, pool_name=self.pool_name)
        self.shared.set(kept | ({uid: found} if found is not None else {}))
