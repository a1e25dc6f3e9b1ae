"""A plan follows from claim and Board alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.claims.node import DRIVER, POOL, board, claim, npu, ref, result
from trio_npu_dra.claims.plan import ClaimPlan, plan_claim
from trio_npu_dra.errors import (
    ClaimError,
    ClaimNotAllocated,
    ClaimUnavailable,
    InvalidOpaqueConfig,
    UnknownDevice,
)
from trio_npu_dra.kube.objects import (
    AllocationConfiguration,
    AllocationResult,
    OpaqueConfiguration,
    ResourceClaim,
    ResourceClaimStatus,
)
from trio_npu_dra.npu.model import EMPTY_BOARD, Board, ChipHealth, Fault, FaultLevel


def plan(claimed: ResourceClaim, on: Board | None = None) -> ClaimPlan:
    """The plan of claim `a`."""
    on = board() if on is None else on
    return plan_claim(claimed, ref("a"), driver_name=DRIVER, pool_name=POOL, board=on)


def config(
    source: str, parameters: object, *requests: str, driver: str = DRIVER
) -> AllocationConfiguration:
    """An opaque config of the allocation."""
    opaque = OpaqueConfiguration(driver=driver, parameters=parameters)
    return AllocationConfiguration(source=source, requests=requests, opaque=opaque)


def test_each_device_is_planned_with_its_request() -> None:
    """In order of the results."""
    planned = plan(claim("a", result("npu-3", "big"), result("npu-1", "small")))

    assert [(device.npu, device.requests) for device in planned.devices] == [
        (npu(3), ("big",)),
        (npu(1), ("small",)),
    ]
    assert {device.pool for device in planned.devices} == {POOL}


def test_a_subrequest_is_reported_as_its_request() -> None:
    """The kubelet knows base names only."""
    assert plan(claim("a", result("npu-0", "npu/two"))).devices[0].requests == ("npu",)


def test_results_of_other_drivers_are_theirs() -> None:
    """A device of the same name elsewhere is not ours."""
    planned = plan(claim("a", result("npu-1", driver="gpu.example.com"), result("npu-2")))

    assert [device.npu.name for device in planned.devices] == ["npu-2"]


def test_a_device_in_two_results_is_planned_once() -> None:
    """As admin access can have it."""
    planned = plan(
        claim(
            "a",
            result("npu-2", "one", admin_access=True),
            result("npu-2", "two", admin_access=True),
        )
    )

    assert [(device.requests, device.admin_access) for device in planned.devices] == [
        (("one", "two"), True)
    ]


def test_one_request_without_admin_access_holds_the_device() -> None:
    """A claim that looks on and uses is a user."""
    planned = plan(claim("a", result("npu-2", "one", admin_access=True), result("npu-2", "two")))

    assert not planned.devices[0].admin_access


def test_an_unhealthy_npu_is_planned() -> None:
    """The pod tolerates its taint, or the scheduler would not have chosen it."""
    fault = Fault(code=0x80E18402, level=FaultLevel.SEPARATE_NPU, rule="", since=0.0)
    sick = replace(npu(0), health=ChipHealth(faults=(fault,)))

    assert plan(claim("a", result("npu-0")), Board(chips=(sick,))).devices[0].npu is sick


@pytest.mark.parametrize(
    ("claimed", "on", "error", "words"),
    [
        (
            claim("a", result("npu-1"), uid="other"),
            None,
            ClaimNotAllocated,
            "the claim was replaced: the pod uses UID uid-a, and default/a now has UID other",
        ),
        (
            claim("a").model_copy(update={"status": None}),
            None,
            ClaimNotAllocated,
            "the claim is not allocated",
        ),
        (
            claim("a").model_copy(update={"status": ResourceClaimStatus()}),
            None,
            ClaimNotAllocated,
            "the claim is not allocated",
        ),
        (
            claim("a", result("npu-1", driver="gpu.example.com")),
            None,
            ClaimNotAllocated,
            f"no device of driver {DRIVER}",
        ),
        (
            claim("a", result("npu-0"), result("npu-7")),
            board(2),
            UnknownDevice,
            r"device npu-7 does not exist on node node-1 any more \(it has npu-0, npu-1\)",
        ),
        (
            claim("a", result("npu-0", pool="node-2")),
            None,
            UnknownDevice,
            "device npu-0 is allocated from pool node-2, and this node serves only pool node-1",
        ),
        (claim("a", result("npu-0")), EMPTY_BOARD, ClaimUnavailable, "npu-0 must wait"),
        (
            claim("a", *(result("npu-0", f"r{n}") for n in range(33))),
            None,
            ClaimError,
            "33 results, Kubernetes allows 32",
        ),
    ],
)
def test_what_cannot_be_prepared_is_refused_by_name(
    claimed: ResourceClaim, on: Board | None, error: type[ClaimError], words: str
) -> None:
    """The pod's owner learns which claim, device or pool is meant."""
    with pytest.raises(error, match=words):
        plan(claimed, on)


def test_the_largest_allocation_is_planned() -> None:
    """32 results."""
    claimed = claim("a", *(result("npu-0", f"r{n}") for n in range(32)))

    assert len(plan(claimed).devices[0].requests) == 32


@pytest.mark.parametrize(
    "given_config",
    [
        config("FromClaim", {"kind": "x"}, "other-request"),
        config("FromClaim", {"kind": "x"}, driver="gpu.example.com"),
        AllocationConfiguration(source="FromClaim"),
    ],
)
def test_a_config_for_others_is_not_read(given_config: AllocationConfiguration) -> None:
    """Another driver's, another request's, or none at all."""
    assert plan(claim("a", result("npu-0"), config=[given_config])).devices


@pytest.mark.parametrize("requests", [(), ("npu",), ("npu/two",), ("x", "npu")])
def test_a_wrong_config_refuses_the_claim(requests: tuple[str, ...]) -> None:
    """One that names no request is for all; one may name request or subrequest."""
    wrong = config("FromClaim", {"kind": "x"}, *requests)

    with pytest.raises(InvalidOpaqueConfig, match=r"in the ResourceClaim: .*kind='x'"):
        plan(claim("a", result("npu-0", "npu/two"), config=[wrong]))


def test_a_class_config_is_judged_before_a_claim_config() -> None:
    """The order in which they apply."""
    configs = [config("FromClaim", {"kind": "x"}), config("FromClass", {"kind": "y"})]

    with pytest.raises(InvalidOpaqueConfig, match=r"in the DeviceClass: .*kind='y'"):
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
    planned = plan(claim("a", *results))

    ours = [each for each in results if each.driver == DRIVER]
    names = [device.npu.name for device in planned.devices]
    assert sorted(names) == sorted({each.device for each in ours})
    for device in planned.devices:
        of = [each for each in ours if each.device == device.npu.name]
        assert set(device.requests) == {each.request.partition("/")[0] for each in of}
        assert len(set(device.requests)) == len(device.requests)
        assert device.admin_access == all(each.admin_access for each in of)
