"""Claims that have their devices: what they have, and what has become of it."""

from __future__ import annotations

import pytest

from dev.explain.reasons import SEPARATED, held, npu, shared
from dev.explain.world import DRIVER, Wire, ask, claim, class_, node, slice_, view_of, with_results
from trio_npu_dra.tools.cluster.explain.verdict import explain_claim
from trio_npu_dra.tools.cluster.objects import Claim
from trio_npu_dra.tools.cluster.said import Outcome


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
