"""The steps of one request: what each leaves, and why it takes away the rest."""

from __future__ import annotations

from typing import Any

import pytest

from dev.explain.reasons import REASONS, SEPARATED, Reason, held, npu
from dev.explain.world import (
    DRIVER,
    Wire,
    ask,
    claim,
    class_,
    device,
    node,
    pod,
    slice_,
    view_of,
    with_results,
)
from trio_npu_dra.tools.cluster.explain.answer import explain_pod
from trio_npu_dra.tools.cluster.explain.funnel import Funnel
from trio_npu_dra.tools.cluster.objects import Pod

NIC = slice_("nic", device("nic-0"), driver="nic.example.com", pool="nics")


def funnel_of(wanted: Wire, *objects: Wire, **spec: Any) -> Funnel:
    """That of a pod with one request."""
    view = view_of(class_(), *objects, claim("train", wanted))
    found = explain_pod(Pod.model_validate(pod("train", "train", **spec)), view)
    return found.claims[0].funnels[0]


def why(funnel: Funnel, at: int) -> str:
    """Why the step takes devices away, of which all have one reason."""
    (loss,) = funnel.steps[at].losses
    return loss.why


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.title)
def test_a_funnel_ends_with_the_step_that_leaves_nothing(reason: Reason) -> None:
    """Later ones have nothing to take away."""
    funnels = [one for report in reason.explained().claims for one in report.funnels]

    assert all(step.left for funnel in funnels for step in funnel.steps[:-1])


def test_the_verb_agrees_with_the_number() -> None:
    """Also of one device, and of none."""
    found = funnel_of(ask(), node("n1"), slice_("s1", npu(0), npu(1)), NIC, held(0))
    last = [(step.left, step.counting) for step in (found.steps[1], found.steps[-1])]

    assert last == [(2, f"are of class {DRIVER}"), (1, "is free")]


def test_all_devices_are_those_that_the_selectors_admit() -> None:
    """Taints and holders may leave none out; other classes do not count."""
    found = funnel_of(
        ask(allocationMode="All"),
        *(node("n1"), NIC, slice_("s1", npu(0), npu(1, taints=[SEPARATED]))),
    )

    assert [(step.left, step.enough) for step in found.steps] == [
        *((3, True), (2, True), (2, True), (1, False), (1, False)),
    ]


def test_devices_of_nodes_that_do_not_take_the_pod_are_left_out() -> None:
    """One that is free there is of no use."""
    found = funnel_of(
        ask(),
        *(node("n1"), node("n2", unschedulable=True), held(0)),
        slice_("s1", npu(0)),
        slice_("s2", npu(0), node="n2"),
    )

    assert [step.left for step in found.steps] == [2, 2, 1, 1, 0]
    assert "n2" in why(found, 2)


def test_a_loss_names_the_driver_only_if_the_selector_does() -> None:
    """An attribute that a device lacks is no reason to name another fact."""
    has_number = f'"serialNumber" in device.attributes["{DRIVER}"]'
    found = funnel_of(ask(has_number), node("n1"), slice_("s1", npu(0)), NIC)

    assert "nic.example.com" in why(found, 1)
    assert "driver" not in why(found, len(found.steps) - 1)


def test_a_device_is_too_small_before_it_is_held() -> None:
    """The size does not change, so it comes first."""
    wanted = ask(capacity={"requests": {"memCapacity": "64Gi"}})
    found = funnel_of(wanted, node("n1"), slice_("s1", npu(0)), held(0))

    assert found.steps[-1].left == 0
    assert "32Gi" in why(found, len(found.steps) - 1)


def test_only_taints_that_keep_the_claim_away_are_named() -> None:
    """Not one that it tolerates, nor one without an effect."""
    told = [
        SEPARATED,
        {"key": "example.com/old", "effect": "NoSchedule"},
        {"key": "example.com/note", "effect": "None"},
    ]
    tolerations = [{"key": "example.com/old", "operator": "Exists"}]
    found = funnel_of(ask(tolerations=tolerations), node("n1"), slice_("s1", npu(0, taints=told)))

    assert why(found, len(found.steps) - 1).endswith(f"{SEPARATED['key']}=SeparateNPU:NoExecute")
    assert "example.com" not in why(found, len(found.steps) - 1)


def test_a_claim_with_admin_access_holds_nothing() -> None:
    """So its end would not free the device."""
    result = {"request": "npu", "driver": DRIVER, "pool": "n1", "device": "npu-0"}
    looking = with_results(claim("look", ask(adminAccess=True)), [{**result, "adminAccess": True}])
    found = funnel_of(ask(), node("n1"), slice_("s1", npu(0)), held(0), looking)

    assert "default/infer" in why(found, len(found.steps) - 1)
    assert "default/look" not in why(found, len(found.steps) - 1)
