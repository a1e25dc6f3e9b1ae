"""Claims that have their devices: what they have, and what has become of it."""

from __future__ import annotations

import pytest

from dev.explain.reasons import SEPARATED, held, npu, shared
from dev.explain.world import (
    DRIVER,
    Wire,
    ask,
    claim,
    class_,
    node,
    pod,
    slice_,
    view_of,
    with_results,
)
from trio_npu_dra.tools.cli.npu_words import diagnosis_lines
from trio_npu_dra.tools.cli.table import plain
from trio_npu_dra.tools.cluster.explain.answer import explain_claim, explain_pod
from trio_npu_dra.tools.cluster.fleet import diagnosis, fleet
from trio_npu_dra.tools.cluster.inventory import NOT_EVICTED
from trio_npu_dra.tools.cluster.objects import Claim, Pod
from trio_npu_dra.tools.cluster.said import Outcome, Why


def test_each_device_is_told_with_its_use_and_its_state() -> None:
    """A share, admin access, and one that is published no more."""
    share_of: Wire = {
        "shareID": "00000000-0000-4000-8000-000000000001",
        "consumedCapacity": {"memCapacity": "8Gi"},
    }
    results = [
        {"request": "npu", "driver": DRIVER, "pool": "n1", "device": f"npu-{at}"} | more
        for at, more in enumerate((share_of, Wire(adminAccess=True), Wire()))
    ]
    made = with_results(claim("train", ask()), results)
    view = view_of(
        *(node("n1"), class_(), made),
        slice_("s1", shared("8Gi"), npu(1, taints=[SEPARATED])),
    )

    (report,) = explain_claim(Claim.model_validate(made), view).claims

    share, admin, gone = report.given
    assert "memCapacity 8Gi" in share.how
    assert "admin" in admin.how
    assert gone.how == ""
    assert (share.now, "SeparateNPU" in admin.now) == ("", True)
    assert "910B4" in share.facts
    assert (gone.facts, bool(gone.now)) == ("", True)


@pytest.mark.parametrize("objects", [(node("n1"),), (class_(),)], ids=["no class", "no node"])
def test_a_claim_has_its_devices_though_nobody_could_get_them_now(
    objects: tuple[Wire, ...],
) -> None:
    """The class may have been deleted since, or the node."""
    made = held(0)

    found = explain_claim(Claim.model_validate(made), view_of(*objects, made))

    assert found.outcome is Outcome.GIVEN
    assert [one.id.name for one in found.claims[0].given] == ["npu-0"]
    assert found.claims[0].funnels == ()


def _deleted(made: Wire) -> Wire:
    return made | {"metadata": made["metadata"] | {"deletionTimestamp": "2026-11-28T12:00:00Z"}}


@pytest.mark.parametrize("is_there", [True, False])
def test_a_pod_that_ends_waits_for_the_driver_of_its_devices(is_there: bool) -> None:
    """Which has gone if it publishes them no more."""
    ending = _deleted(pod("infer-0", "infer", nodeName="n1", status={"phase": "Running"}))
    slices = (slice_("s1", npu(0)),) if is_there else ()
    view = view_of(node("n1"), class_(), *slices, held(0), ending)

    found = explain_pod(Pod.model_validate(ending), view)

    assert found.sentence.code is Why.POD_DELETED
    assert "being deleted" in found.sentence
    assert found.sentence.facts["drivers"] == ([] if is_there else [DRIVER])


@pytest.mark.parametrize("made", [held(0), claim("infer", ask())], ids=["held", "waits"])
def test_a_claim_that_is_being_deleted_is_said_to_be(made: Wire) -> None:
    """Nothing is allocated to it, and what it has is free when its pod ends."""
    view = view_of(node("n1"), class_(), slice_("s1", npu(0), npu(1)), _deleted(made))

    found = explain_claim(Claim.model_validate(_deleted(made)), view)

    assert "is being deleted" in found.sentence
    assert found.outcome is (Outcome.GIVEN if "status" in made else Outcome.WAITS)


@pytest.mark.parametrize("effect", ["NoExecute", "NoSchedule"])
def test_a_pod_that_asks_by_limits_is_said_not_to_be_evicted(effect: str) -> None:
    """Kubernetes looks at the claims that a pod names, and it names none."""
    made = held(0)
    made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    ill = slice_("s1", npu(0, taints=[{**SEPARATED, "effect": effect}]))
    status = {"phase": "Running", "extendedResourceClaimStatus": {"resourceClaimName": "infer"}}
    view = view_of(node("n1"), class_(), ill, made)

    runs = explain_pod(Pod.model_validate(pod("infer-0", nodeName="n1", status=status)), view)
    ((row,),) = [one.devices for one in fleet(view, DRIVER)]
    touched = "\n".join(map(plain, diagnosis_lines(diagnosis("n1", row, (), ()))))

    is_said = [NOT_EVICTED in text for text in (runs.claims[0].state, touched)]
    assert is_said == [effect == "NoExecute"] * 2
