"""Notices claims that several pods have: one container at a time can open an NPU.

A claim says for which pods it is reserved, so that no right on pods is needed. It is seen whenever
a claim is read: at prepare, and by those who look whether it still exists, each ten minutes. The
kubelet says nothing when a second pod comes for a claim that is prepared.
"""

from __future__ import annotations

from collections.abc import Mapping

from trio_npu_dra.agent.claims.plan import allocation_of
from trio_npu_dra.agent.claims.planner import ClaimReader
from trio_npu_dra.agent.holds.hold import Holder, HolderKind, SharedClaim
from trio_npu_dra.agent.holds.ledger import Ledger
from trio_npu_dra.kit.api.objects import ResourceClaim
from trio_npu_dra.kit.base.errors import ClaimError
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.kubelet.driver import ClaimRef


def shared_claim(claim: ResourceClaim, *, driver_name: str, pool_name: str) -> SharedClaim | None:
    """What several pods have together (pure); None if it is nothing.

    What the claim's config shares is meant for several, and a claim that cannot be prepared has
    nothing.
    """
    uid = claim.metadata.uid
    pods = sorted(user.name for user in claim.status.reserved_for if user.resource == "pods")
    if len(pods) < 2 or not uid:
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
        if given.config is not None and not given.config.shared
    )
    if not devices:
        return None
    holder = Holder(kind=HolderKind.CLAIM, namespace=ref.namespace, name=ref.name, uid=uid)
    return SharedClaim(holder=holder, devices=tuple(devices), pods=tuple(pods))


class ContentionObserver:
    """Reads claims, and notes which of them several pods have.

    Args:
        reader: Where claims are read.
        ledger: Claims that are neither in it nor read now are forgotten.
        shared: Set to those claims, by UID.
        driver_name: Results of other drivers are theirs.
        pool_name: The pool of this node.
    """

    def __init__(
        self,
        reader: ClaimReader,
        ledger: Ledger,
        shared: Observable[Mapping[str, SharedClaim]],
        *,
        driver_name: str,
        pool_name: str,
    ) -> None:
        self._reader = reader
        self._ledger = ledger
        self._shared = shared
        self._driver_name = driver_name
        self._pool_name = pool_name

    async def get(
        self,
        kind: type[ResourceClaim],
        name: str,
        namespace: str | None = None,
        *,
        is_cached: bool = False,
    ) -> ResourceClaim:
        """Read one claim.

        Raises:
            NotFound: It does not exist.
            KubeError: Refused or unreachable.
        """
        claim = await self._reader.get(kind, name, namespace, is_cached=is_cached)
        uid = claim.metadata.uid or ""
        known = self._ledger.by_uid
        kept = {key: one for key, one in self._shared.value.items() if key in known and key != uid}
        found = shared_claim(claim, driver_name=self._driver_name, pool_name=self._pool_name)
        self._shared.set(kept | ({uid: found} if found is not None else {}))
        return claim
