"""What an explanation says about many nodes, or none."""

from __future__ import annotations

import pytest

from dev.explain.reasons import held, npu
from dev.explain.world import ask, claim, class_, node, pod, slice_, view_of
from trio_npu_dra.tools.cluster.explain.answer import explain_pod
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Outcome


@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize(
    ("count", "more"), [(3, ""), (4, "and 1 more node"), (5, "and 2 more nodes")]
)
def test_three_nodes_are_named(count: int, more: str, is_free: bool) -> None:
    """And the others counted, whether they have the NPU or do not take the pod."""
    names = [f"n{at}" for at in range(count)]
    view = view_of(
        class_(),
        claim("train", ask()),
        *(node(name, unschedulable=not is_free) for name in names),
        *(slice_(f"s-{name}", npu(0), node=name) for name in names),
    )
    claims = ["train"] if is_free else []

    found = explain_pod(Pod.model_validate(pod("train", *claims)), view)

    assert found.outcome is (Outcome.FREE if is_free else Outcome.WAITS)
    assert [name in found.sentence for name in names] == [at < 3 for at in range(count)]
    assert more in found.sentence
    assert ("more node" in found.sentence) is bool(more)


def test_without_a_node_none_is_blamed() -> None:
    """There is none that could refuse the pod."""
    found = explain_pod(Pod.model_validate(pod("web")), view_of())

    assert (found.outcome, found.sentence) == (Outcome.WAITS, "there is no node")


def test_a_claim_that_is_allocated_is_told_beside_one_that_is_not() -> None:
    """The pod needs both, so it can go only where the first one is."""
    view = view_of(
        *(node("n1"), node("n2"), class_(), claim("more", ask())),
        *(slice_("s1", npu(0)), slice_("s2", npu(0), node="n2"), held(0)),
    )

    found = explain_pod(Pod.model_validate(pod("train", "infer", "more")), view)

    assert [(one.claim.title, len(one.given)) for one in found.claims] == [
        ("default/infer", 1),
        ("default/more", 0),
    ]
    assert found.outcome is Outcome.WAITS
    assert [bool(why) for _, why in found.nodes] == [True, True]
