"""Requests that could be served one by one but not together, and what would help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dev.explain.reasons import RING, SEPARATED, held, npu
from dev.explain.world import DRIVER, Wire, ask, claim, class_, node, pod, slice_, view_of
from trio_npu_dra.tools.cluster.explain import search
from trio_npu_dra.tools.cluster.explain.answer import Explanation, explain_pod
from trio_npu_dra.tools.cluster.objects import Pod
from trio_npu_dra.tools.cluster.said import Action, Outcome

ONE = slice_("s1", npu(0))
TWO = slice_("s1", npu(0), npu(1))


def explained(*objects: Wire, claims: Iterable[str] = ("train",), **spec: Any) -> Explanation:
    """The explanation of a pod with these claims."""
    view = view_of(class_(), *objects)
    return explain_pod(Pod.model_validate(pod("train", *claims, **spec)), view)


def test_several_claims_may_have_to_end() -> None:
    """When none of them alone would do."""
    found = explained(
        *(node("n1"), TWO, held(0, name="a"), held(1, name="b")),
        claim("train", ask(count=2)),
    )

    assert found.helps[-1] == "when the pods of several claims on n1 end"


def test_several_claims_that_no_pod_uses_have_to_be_deleted() -> None:
    """No pod will end; and none is to be deleted if the others are enough."""
    unused = held(0, name="a")
    unused["status"]["reservedFor"] = []
    wanted = claim("train", ask(count=2))
    words = "when the pods of several claims on n1 end"
    for more, rest in (((), ", and those that no pod uses are deleted"), ((2,), "")):
        npus = slice_("s1", *map(npu, (0, 1, *more)))
        others = (held(at, name=f"b-{at}") for at in (1, *more))
        assert explained(node("n1"), npus, unused, *others, wanted).helps[-1] == words + rest


def test_claims_elsewhere_do_not_count_among_those_tried() -> None:
    """However many there are, and whatever their names."""
    far = [held(0, name=f"a-{at}", node=f"far-{at}") for at in range(50)]
    found = explained(node("n1"), ONE, *far, held(0, name="z"), claim("train", ask()))

    assert found.helps == ("when pod z-0 ends (claim default/z), on n1",)


def test_a_toleration_may_help() -> None:
    """Of a taint that is all that keeps the claim from the NPU."""
    found = explained(
        *(node("n1"), slice_("s1", npu(0, taints=[SEPARATED])), claim("train", ask())),
    )

    (words,) = found.helps
    assert words.startswith("toleration")


def test_nodes_that_do_not_take_the_pod_are_no_help_but_by_themselves() -> None:
    """The claim on one of them may go on."""
    found = explained(
        *(node("n1"), node("n2", unschedulable=True)),
        *(ONE, slice_("s2", npu(0), npu(1), node="n2")),
        *(held(0, name="a"), held(0, name="b", node="n2"), claim("train", ask())),
    )

    assert found.helps == (
        "n2 has what it asks for, but is cordoned",
        "when pod a-0 ends (claim default/a), on n1",
    )


def test_no_claim_that_a_pod_uses_is_to_be_deleted() -> None:
    """It would stay until its pod ends; what ends anyway comes first, what nobody uses last."""
    unused = held(0, name="a")
    unused["status"]["reservedFor"] = []
    deleted = held(1, name="c")
    deleted["metadata"]["deletionTimestamp"] = "2026-11-28T12:00:00Z"
    ending = pod("d-0", "d", nodeName="n1", status={"phase": "Running"})
    ending["metadata"]["deletionTimestamp"] = "2026-11-28T12:00:00Z"
    npus = slice_("s1", *(npu(at) for at in range(4)))
    held_by = (unused, held(2, name="b"), deleted, held(3, name="d"))

    found = explained(node("n1"), npus, *held_by, ending, claim("train", ask()))

    assert found.helps == (
        "when pod c-0 ends (claim default/c, which is being deleted), on n1",
        "when pod d-0 ends, which is being deleted (claim default/d), on n1",
        "when pod b-0 ends (claim default/b), on n1",
    )
    (nobody,) = explained(node("n1"), ONE, unused, claim("train", ask())).helps
    assert nobody.code is Action.DELETE_CLAIM


def test_a_constraint_is_the_reason_only_if_it_is_in_the_way() -> None:
    """Two requests want the one NPU; no rule is to blame."""
    requests = [{"name": name, "exactly": ask()} for name in ("a", "b")]
    blamed, innocent = (
        explained(node("n1"), slices, claim("train", *requests, constraints=[RING]))
        for slices in (slice_("s1", npu(0), npu(1, ring=1)), ONE)
    )

    assert [found.outcome for found in (blamed, innocent)] == [Outcome.WAITS] * 2
    assert RING["matchAttribute"] in blamed.sentence
    assert RING["matchAttribute"] not in innocent.sentence


def test_the_constraint_that_is_in_the_way_is_named() -> None:
    """Not one that holds anyway; it stays when the other is left out."""
    model = {"matchAttribute": f"{DRIVER}/model"}
    found = explained(
        *(node("n1"), slice_("s1", npu(0), npu(1, ring=1))),
        claim("train", ask(count=2), constraints=[model, RING]),
    )

    without = [words for words in found.helps if "without" in words]
    assert len(without) == 1
    assert RING["matchAttribute"] in without[0]


def test_a_search_without_end_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rings of one NPU each; three tries are not enough to see that."""
    objects = (
        node("n1"),
        slice_("s1", *(npu(at, ring=at) for at in range(4))),
        claim("train", ask(count=2), constraints=[RING]),
    )

    decided = explained(*objects)
    monkeypatch.setattr(search, "STEPS_LIMIT", 3)
    endless = explained(*objects)

    assert [decided.outcome, endless.outcome] == [Outcome.WAITS, Outcome.UNDECIDED]
    assert "too many combinations" in endless.sentence
