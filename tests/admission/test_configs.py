"""The API server refuses a wrong opaque config in the driver's own words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.policy import Object, Request, policies
from tests.config_cases import CASES, GOOD, Case

POLICY = policies("base")["ascend-npu-dra-config"]
WRONG = GOOD | {"kind": "GpuConfig"}
RESOURCES = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}


def with_config(kind: str, parameters: Any, *, driver: str = "npu.huawei.com") -> Object:
    """An object with that config."""
    config = {"config": [{"opaque": {"driver": driver, "parameters": parameters}}]}
    specs: dict[str, Object] = {
        "ResourceClaim": {"devices": config},
        "ResourceClaimTemplate": {"spec": {"devices": config}},
        "DeviceClass": config,
    }
    return {"kind": kind, "metadata": {"name": "some"}, "spec": specs[kind]}


def refusals(new: Object, old: Object | None = None) -> list[str]:
    """What the policy has against somebody's write."""
    resource = RESOURCES[new["kind"]]
    return POLICY.refusals(
        Request(resource=resource, group="resource.k8s.io", new=new, old=old, user="some")
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_config_is_judged_as_the_driver_does(case: Case) -> None:
    """Word by word."""
    wanted = [case.refusal("ResourceClaim")] if case.words else []
    assert refusals(with_config("ResourceClaim", case.parameters)) == wanted


@pytest.mark.parametrize("kind", RESOURCES)
def test_config_is_judged_wherever_it_is(kind: str) -> None:
    """In claims, templates and classes, of this driver alone."""
    assert refusals(with_config(kind, GOOD)) == []
    assert len(refusals(with_config(kind, WRONG))) == 1
    assert refusals(with_config(kind, WRONG, driver="gpu.example.com")) == []


def test_change_of_a_class_is_judged() -> None:
    """Unlike claims and templates, classes change."""
    old, new = (with_config("DeviceClass", parameters) for parameters in (GOOD, WRONG))
    assert len(refusals(new, old)) == 1


def test_claims_of_others_pass_whatever_happens() -> None:
    """A policy that cannot judge a claim lets it through: the driver judges it again."""
    assert POLICY.spec["failurePolicy"] == "Ignore"
    broken = {"kind": "ResourceClaim", "metadata": {"name": "some"}, "spec": None}
    assert refusals(broken) == []
