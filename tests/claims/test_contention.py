"""Each read of a claim notices several pods."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.claims.node import DRIVER, POOL, NodeOnDisk, claim, config, ref, result
from trio_npu_dra.agent.claims.contention import ContentionObserver, shared_claim
from trio_npu_dra.agent.holds.hold import SharedClaim
from trio_npu_dra.kit.api.claims import ObservedReader
from trio_npu_dra.kit.api.objects import (
    AllocationConfiguration,
    AllocationResult,
    Consumer,
    ResourceClaim,
)
from trio_npu_dra.kit.base.observable import Observable

SHARED, EXCLUSIVE = (
    {
        "apiVersion": "npu.huawei.com/v1alpha1",
        "kind": "NpuConfig",
        "sharing": {"strategy": strategy},
    }
    for strategy in ("Shared", "Exclusive")
)


def noticed(claim: ResourceClaim) -> SharedClaim | None:
    """The node's devices for which several pods contend."""
    return shared_claim(claim, driver_name=DRIVER, pool_name=POOL)


def reserved(claim: ResourceClaim, *names: str, resource: str = "pods") -> ResourceClaim:
    """The claim, for those pods."""
    users = tuple(Consumer(resource=resource, name=name, uid=f"uid-{name}") for name in names)
    assert claim.status is not None
    status = claim.status.model_copy(update={"reserved_for": users})
    return claim.model_copy(update={"status": status})


@pytest.mark.parametrize(
    ("results", "devices"),
    [
        ([result("npu-1")], ("npu-1",)),
        ([result("npu-2", "a"), result("npu-2", "b"), result("npu-0")], ("npu-2", "npu-0")),
        ([result("npu-1", admin_access=True)], None),
        ([result("npu-1", share_id="s")], None),
        ([result("gpu-1", driver="gpu.example.com")], None),
        ([result("npu-1", pool="node-b")], None),
        ([], None),
    ],
)
def test_pods_contend_for_whole_devices(
    results: list[AllocationResult], devices: tuple[str, ...] | None
) -> None:
    """Devices of ours that one pod keeps from another."""
    found = noticed(reserved(claim("a", *results), "two", "one"))
    assert (found.devices if found else None) == devices
    assert found is None or found.pods == ("one", "two")


@pytest.mark.parametrize(
    ("configs", "devices"),
    [
        ([config("FromClaim", SHARED)], None),
        ([config("FromClass", SHARED)], None),
        ([config("FromClass", SHARED), config("FromClaim", EXCLUSIVE)], ("npu-1", "npu-2")),
        ([config("FromClaim", SHARED, "b")], ("npu-1",)),
        ([config("FromClaim", {"kind": "Pod"})], None),
    ],
)
def test_devices_that_a_config_shares_are_meant_for_several_pods(
    configs: list[AllocationConfiguration], devices: tuple[str, ...] | None
) -> None:
    """Neither before its chips are shared nor after; a claim with a wrong config has none."""
    claimed = claim("a", result("npu-1", "a"), result("npu-2", "b"), config=configs)
    found = noticed(reserved(claimed, "one", "two"))
    assert (found.devices if found else None) == devices


def test_one_pod_has_no_rival() -> None:
    """Nor do users that are no pods, or none."""
    for users in (reserved(claim("a", result("npu-1")), "one"), claim("a", result("npu-1"))):
        assert noticed(users) is None
    others = reserved(claim("a", result("npu-1")), "one", "two", resource="things")
    assert noticed(others) is None


def test_a_pod_group_has_several_pods() -> None:
    """The claim is reserved for the group and names none of its pods."""
    found = noticed(reserved(claim("a", result("npu-1")), "train", resource="podgroups"))
    assert found is not None
    assert found.pods == ("PodGroup train",)


async def test_a_claim_that_is_read_is_noted_while_it_is_held(node: NodeOnDisk) -> None:
    """A claim that is read again and has one pod then, or is held no more, is forgotten."""
    ledger = node.ledger()
    shared: Observable[Mapping[str, SharedClaim]] = Observable({})
    observer = ContentionObserver(ledger=ledger, shared=shared, driver_name=DRIVER, pool_name=POOL)
    reader = ObservedReader(node.source, [observer])
    claims = node.start(ledger=ledger)
    for name in ("a", "b", "c"):
        node.source.store(reserved(claim(name, result("npu-2")), "one", "two"))
    node.source.store(reserved(claim("b", result("npu-3")), "one", "two"))
    await claims.prepare([ref("a"), ref("b")])
    for name in ("a", "b", "c"):
        await reader.get(ResourceClaim, name, "default")
    assert shared.value.keys() == {"uid-a", "uid-b", "uid-c"}

    node.source.store(reserved(claim("a", result("npu-2")), "one"))
    await reader.get(ResourceClaim, "a", "default")
    assert shared.value.keys() == {"uid-b"}
