"""A claim's plan follows from claim and Board alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.node import DRIVER, POOL, board, claim, config, npu, ref, result
from trio_npu_dra.agent.claims.allocation import allocation_of, check_partitions, offers_of
from trio_npu_dra.agent.holds.entry import Allocated
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import Board, ChipFamily, ChipHealth, Fault, FaultLevel
from trio_npu_dra.ascend.offers import Offer, OfferKind, offers
from trio_npu_dra.ascend.partition import Partition
from trio_npu_dra.kit.api.objects import (
    AllocationConfiguration,
    AllocationResult,
    ResourceClaim,
)
from trio_npu_dra.kit.base.errors import (
    ClaimError,
    ClaimUnavailable,
    InvalidOpaqueConfig,
    UnknownDevice,
)


def plan(
    claimed: ResourceClaim, on: Board | None = None
) -> tuple[tuple[Allocated, ...], tuple[Offer, ...]]:
    """The allocation of claim `a`, and its offers."""
    allocation = allocation_of(claimed, ref("a"), driver_name=DRIVER, pool_name=POOL)
    on = board() if on is None else on
    by_name = {offer.name: offer for offer in offers(on)}
    return allocation, offers_of(allocation, pool_name=POOL, by_name=by_name, gaps=on.gaps)


def test_a_module_is_planned_with_both_dies() -> None:
    """As it is offered."""
    dies = tuple(
        replace(npu(n), card_id=1, device_id=n % 2, family=ChipFamily.ASCEND_910_A3) for n in (2, 3)
    )
    union = Board(chips=dies, multi_die_policy=MultiDiePolicy.UNION)
    _, (offer,) = plan(claim("a", result("module-1")), union)

    assert offer.chips == dies
    with pytest.raises(UnknownDevice, match=r"npu-2 does not exist .* \(it has module-1\)"):
        plan(claim("a", result("npu-2")), union)


def test_an_unhealthy_npu_is_planned() -> None:
    """The pod tolerates its taint, or the scheduler would not have chosen it."""
    fault = Fault(code=0x80E18402, level=FaultLevel.SEPARATE_NPU, rule="", since=0.0)
    unhealthy = replace(npu(0), health=ChipHealth(faults=(fault,)))

    assert plan(claim("a", result("npu-0")), Board(chips=(unhealthy,)))[1][0].chips == (unhealthy,)


@pytest.mark.parametrize(
    ("on", "words"),
    [
        (
            replace(board(2), unanswered=("card 2: booting",)),
            r"npu-2 .* may be one that does not answer yet \(card 2: booting\): it must wait",
        ),
        (
            replace(board(2), unlisted_accelerators=("0000:41:00.0",)),
            r"\(accelerator 0000:41:00.0 is not listed\): it must wait",
        ),
    ],
)
def test_a_device_that_may_be_in_a_gap_is_waited_for(on: Board, words: str) -> None:
    """The message names the gap; other refusals are in test_answers."""
    with pytest.raises(ClaimUnavailable, match=words):
        plan(claim("a", result("npu-2")), on)


def test_of_many_devices_a_refusal_names_a_few() -> None:
    """A node of partitions has hundreds."""
    with pytest.raises(UnknownDevice, match=r"npu-15 and 4 more\)"):
        plan(claim("a", result("npu-20")), board(20))


def test_the_largest_allocation_is_planned() -> None:
    """32 results."""
    claimed = claim("a", *(result("npu-0", f"r{n}") for n in range(32)))

    assert len(plan(claimed)[0][0].requests) == 32


@pytest.mark.parametrize(
    "given_config",
    [
        config("FromClaim", {"kind": "x"}, "other-request"),
        config("FromClaim", {"kind": "x"}, driver="gpu.example.com"),
        AllocationConfiguration(source="FromClaim"),
    ],
)
def test_a_config_for_another_driver_or_request_is_not_read(
    given_config: AllocationConfiguration,
) -> None:
    """Another driver's, another request's, or none at all."""
    assert plan(claim("a", result("npu-0"), config=[given_config]))[1]


@pytest.mark.parametrize("requests", [(), ("npu",), ("npu/two",), ("x", "npu")])
def test_a_wrong_config_refuses_the_claim(requests: tuple[str, ...]) -> None:
    """One that names no request is for all; one may name request or subrequest."""
    wrong = config("FromClaim", {"kind": "x"}, *requests)

    with pytest.raises(InvalidOpaqueConfig, match=r'in the ResourceClaim: .*kind is "x"'):
        plan(claim("a", result("npu-0", "npu/two"), config=[wrong]))


def test_a_class_config_is_judged_before_a_claim_config() -> None:
    """The order in which they apply."""
    configs = [config("FromClaim", {"kind": "x"}), config("FromClass", {"kind": "y"})]

    with pytest.raises(InvalidOpaqueConfig, match=r'in the DeviceClass: .*kind is "y"'):
        plan(claim("a", result("npu-0"), config=configs))


@given(
    st.lists(
        st.builds(
            result,
            device=st.sampled_from([f"npu-{n}" for n in range(4)]),
            request=st.sampled_from(["a", "b", "a/x", "a/y"]),
            driver=st.sampled_from([DRIVER, "gpu.example.com"]),
            admin_access=st.sampled_from([None, False, True]),
        ),
        max_size=32,
    ).filter(lambda results: any(each.driver == DRIVER for each in results))
)
def test_a_plan_has_each_of_our_devices_once_and_all_its_requests(
    results: list[AllocationResult],
) -> None:
    """For any allocation."""
    allocation, planned = plan(claim("a", *results))

    ours = [each for each in results if each.driver == DRIVER]
    assert [offer.name for offer in planned] == list(dict.fromkeys(each.device for each in ours))
    assert len({(given.device, given.admin_access) for given in allocation}) == len(allocation)
    for given_device in allocation:
        of = [
            each
            for each in ours
            if each.device == given_device.device
            and bool(each.admin_access) == given_device.admin_access
        ]
        assert set(given_device.requests) == {each.request.partition("/")[0] for each in of}
        assert len(set(given_device.requests)) == len(given_device.requests)


SHARED = {
    "apiVersion": "npu.huawei.com/v1alpha1",
    "kind": "NpuConfig",
    "sharing": {"strategy": "Shared"},
}
ON_DEMAND, BY_HAND = (
    Partition(template="vir05_1c_8g", number=0),
    Partition(template="vir05_1c_8g", vnpu=100),
)


@pytest.mark.parametrize(
    ("partition", "admin_access", "shared", "problem"),
    [
        (None, False, True, ""),
        (None, True, True, ""),
        (BY_HAND, False, False, ""),
        (BY_HAND, True, False, ""),
        (ON_DEMAND, False, False, ""),
        (
            BY_HAND,
            False,
            True,
            "sharing.strategy=Shared is not possible for device npu-1-partition",
        ),
        (BY_HAND, True, True, "sharing.strategy=Shared is not possible for device npu-1-partition"),
        (ON_DEMAND, False, True, "the Ascend driver gives a vNPU to one container"),
        (ON_DEMAND, True, False, "admin access to it is not possible"),
    ],
)
def test_a_partition_is_for_one_container(
    partition: Partition | None, admin_access: bool, shared: bool, problem: str
) -> None:
    """A vNPU created manually or on demand; admin access to the latter is refused too."""
    kind = OfferKind.VNPU if partition else OfferKind.NPU
    offer = Offer(name="npu-1-partition", kind=kind, chips=(npu(1),), partition=partition)
    configs = [config("FromClaim", SHARED)] if shared else []
    claimed = claim("a", result("npu-1-partition", admin_access=admin_access), config=configs)
    allocation = allocation_of(claimed, ref("a"), driver_name=DRIVER, pool_name=POOL)
    if not problem:
        return check_partitions(allocation, [offer])
    with pytest.raises(ClaimError, match=problem):
        check_partitions(allocation, [offer])
    return None


def test_a_shared_chip_beside_a_partition_is_fine() -> None:
    """The config shares the whole chip only."""
    partition = Offer(
        name="npu-1-partition", kind=OfferKind.VNPU, chips=(npu(1),), partition=ON_DEMAND
    )
    whole = Offer(name="npu-2", kind=OfferKind.NPU, chips=(npu(2),))
    results = result("npu-1-partition", "partition"), result("npu-2", "whole")
    claimed = claim("a", *results, config=[config("FromClaim", SHARED, "whole")])
    allocation = allocation_of(claimed, ref("a"), driver_name=DRIVER, pool_name=POOL)
    check_partitions(allocation, [partition, whole])
