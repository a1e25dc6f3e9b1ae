"""The API server refuses the opaque configs that the driver refuses, and names the field."""

from __future__ import annotations

from typing import Any

import pytest

from dev.config.cases import CASES, GOOD, Case
from tests.admission.policy import Object, Request, policies

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
    """Why the policy refuses a write of a user."""
    resource = RESOURCES[new["kind"]]
    return POLICY.refusals(
        Request(resource=resource, group="resource.k8s.io", new=new, old=old, user="some")
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_config_is_judged_as_the_driver_does(case: Case) -> None:
    """The first message, which the API server shows, names a wrong field."""
    told = refusals(with_config("ResourceClaim", case.parameters))
    assert bool(told) == bool(case.words)
    assert not told or case.is_named(told[0])


@pytest.mark.parametrize("kind", RESOURCES)
def test_config_is_judged_wherever_it_is(kind: str) -> None:
    """In claims, templates and classes, of this driver alone."""
    assert refusals(with_config(kind, GOOD)) == []
    assert len(refusals(with_config(kind, WRONG))) == 1
    assert refusals(with_config(kind, WRONG, driver="gpu.example.com")) == []


@pytest.mark.parametrize("kind", RESOURCES)
def test_only_the_change_of_a_class_is_judged(kind: str) -> None:
    """Updates of claims change metadata alone: to judge them would keep old claims from going."""
    new = with_config(kind, WRONG)
    assert len(refusals(new, new)) == (kind == "DeviceClass")


def test_claims_of_others_pass_whatever_happens() -> None:
    """A policy that cannot judge a claim lets it through: the driver judges it again."""
    assert POLICY.spec["failurePolicy"] == "Ignore"
    broken = {"kind": "ResourceClaim", "metadata": {"name": "some"}, "spec": None}
    assert refusals(broken) == []
