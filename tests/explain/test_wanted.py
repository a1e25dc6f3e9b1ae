"""Claims that ask in a way that is not known here: the explanation makes no guess."""

from __future__ import annotations

import pytest

from dev.explain.reasons import npu
from dev.explain.world import Wire, ask, claim, class_, node, pod, slice_, view_of
from trio_npu_dra.tools.cluster.explain.answer import explain_pod
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Outcome


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (claim("train", {"name": "npu", "each": ask()}), "npu"),
        (claim("train", ask(selectors=[{"wasm": {}}])), "CEL"),
        (claim("train", ask(derivedAttributes=[{"name": "x"}])), "derived"),
        (claim("train", ask(allocationMode="Most")), "Most"),
        (claim("train", ask(), constraints=[{"nearAttribute": "x"}]), "constraint"),
    ],
    ids=["request", "selector", "attributes", "mode", "constraint"],
)
def test_what_a_newer_kubernetes_may_bring_is_not_decided(made: Wire, word: str) -> None:
    """The reason names it."""
    view = view_of(node("n1"), class_(), slice_("s1", npu(0)), made)

    found = explain_pod(Pod.model_validate(pod("train", "train")), view)

    assert found.outcome is Outcome.UNDECIDED
    assert word in found.sentence
