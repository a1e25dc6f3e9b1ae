"""The claims of a pod: those that it names, those made for it, and those that it waits for."""

from __future__ import annotations

from typing import Any

import pytest

from dev.explain.reasons import npu
from dev.explain.world import (
    DRIVER,
    Wire,
    allocated,
    ask,
    claim,
    class_,
    node,
    pod,
    slice_,
    view_of,
)
from trio_npu_dra.tools.cluster.explain.answer import explain_pod
from trio_npu_dra.tools.cluster.explain.case import (
    PodClaims,
    claim_for,
    claims_of,
    class_of,
)
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Outcome

NAME = "huawei.com/Ascend910"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": "uid-train"}
GROUP = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "gang", "uid": "g"}


def of_pod(*objects: Wire, **spec: Any) -> PodClaims:
    """The claims of the pod `train`, which uses the claim `npu`."""
    mine = Pod.model_validate(pod("train", "npu", **spec))
    return claims_of(mine, view_of(*objects))


def of_template(*objects: Wire, made: str | None) -> PodClaims:
    """Those of a pod with a template, of which the controller has made this claim, or none."""
    status = {
        "phase": "Pending",
        "resourceClaimStatuses": [
            {"name": "npu"} | ({"resourceClaimName": made} if made else {}),
        ],
    }
    named = [{"name": "npu", "resourceClaimTemplateName": "one-npu"}]
    group = {"podGroupName": "gang"}
    return of_pod(*objects, resourceClaims=named, status=status, schedulingGroup=group)


def test_a_claim_that_the_controller_did_not_need_to_make_is_not_missed() -> None:
    """It says so by a status without the claim's name."""
    assert of_template(made=None) == PodClaims(claims=())


@pytest.mark.parametrize(
    ("owners", "is_mine"),
    [([OWNER], True), ([GROUP], True), ([GROUP | {"name": "other"}], False), ([], False)],
)
def test_a_claim_of_a_template_has_the_pod_as_its_owner(owners: list[Wire], is_mine: bool) -> None:
    """Or the pod's PodGroup. Another that has the name by chance does not count."""
    found = of_template(claim("train-npu-x", ask(), ownerReferences=owners), made="train-npu-x")

    assert [one.metadata.name for one in found.claims] == ["train-npu-x"]
    assert (found.missing, bool(found.problem)) == (None, not is_mine)


def test_a_claim_that_is_being_deleted_is_no_use() -> None:
    """The scheduler waits for its successor."""
    leaving = claim("npu", ask(), deletionTimestamp="2026-11-22T08:00:00Z")

    assert "default/npu" in (of_pod(leaving).problem or "")
    assert of_pod(claim("npu", ask())).problem is None


@pytest.mark.parametrize(
    ("others", "is_mine", "is_full"), [(255, False, False), (256, False, True), (255, True, False)]
)
def test_a_claim_has_no_more_users_than_the_api_server_lets_it(
    others: int, is_mine: bool, is_full: bool
) -> None:
    """256, and the pod may be one of them."""
    users = [f"other-{at}" for at in range(others)] + ["train"] * is_mine
    found = of_pod(allocated(claim("npu", ask()), "npu-0", users=users))

    assert bool(found.problem) is is_full


def test_a_full_claim_is_open_to_the_pods_of_its_group() -> None:
    """The group is one user, and its pods are none."""
    full = allocated(claim("npu", ask()), "npu-0", users=[f"other-{at}" for at in range(255)])
    full["status"]["reservedFor"].append({"resource": "podgroups", "name": "gang", "uid": "g"})

    assert of_pod(full, schedulingGroup={"podGroupName": "gang"}).problem is None
    assert of_pod(full, schedulingGroup={"podGroupName": "other"}).problem


def test_the_first_problem_is_the_one_that_is_said() -> None:
    """And a claim that is used twice counts once."""
    named = [
        {"name": name, "resourceClaimName": claimed}
        for name, claimed in (("a", "npu"), ("b", "npu"), ("c", "gone"), ("d", "lost"))
    ]
    found = of_pod(claim("npu", ask()), resourceClaims=named)

    assert [one.title for one in found.claims] == ["default/npu"]
    assert "gone" in (found.missing or "")
    assert found.problem == found.missing


def test_a_class_gives_the_resource_that_it_names() -> None:
    """Or that is named after it; of several the first by name."""
    classes = view_of(
        class_(extendedResourceName=NAME), class_("a.example.com", extendedResourceName=NAME)
    ).classes

    assert class_of(NAME, classes) == "a.example.com"
    assert class_of(IMPLICIT, classes) == DRIVER
    assert class_of(IMPLICIT + "x", classes) is None
    assert class_of("huawei.com/Ascend310P", classes) is None


def test_the_claim_for_resources_has_a_request_for_each_container_that_wants_some() -> None:
    """Init containers are counted first, as the scheduler counts them; a limit is a request."""

    def wanting(**resources: Wire) -> Wire:
        return {"name": "c", "resources": resources}

    mine = Pod.model_validate(
        pod(
            "train",
            initContainers=[wanting(limits={NAME: "1"})],
            containers=[
                wanting(requests={NAME: "0", "cpu": "1"}),
                wanting(requests={NAME: "2", IMPLICIT: "3"}),
            ],
        )
    )
    classes = view_of(class_("npus", extendedResourceName=NAME), class_()).classes

    made = claim_for(mine, {NAME, IMPLICIT}, classes)

    assert made is not None
    assert made.metadata.namespace == "default"
    asked = [(one.name, one.exactly) for one in made.spec.devices.requests]
    assert [(name, one.device_class_name, one.count) for name, one in asked if one] == [
        ("container-0-request-0", "npus", 1),
        ("container-2-request-0", DRIVER, 3),
        ("container-2-request-1", "npus", 2),
    ]
    assert claim_for(mine, set(), classes) is None


@pytest.mark.parametrize(("count", "expected"), [("1", Outcome.FREE), ("2", Outcome.WAITS)])
def test_a_resource_of_a_class_is_allocated_as_a_claim(count: str, expected: Outcome) -> None:
    """The node itself counts none."""
    main = {"name": "main", "resources": {"limits": {NAME: count}}}
    view = view_of(node("n1"), class_(extendedResourceName=NAME), slice_("s1", npu(0)))

    found = explain_pod(Pod.model_validate(pod("train", containers=[main])), view)

    assert found.outcome is expected
    assert [one.claim.title for one in found.claims] == ["default/train-extended-resources"]
