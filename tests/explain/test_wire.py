"""`-o json` has the fields and codes that docs/reference/kubectl-npu.md lists, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dev.explain.reasons import REASONS, Reason
from dev.explain.scene import super_pods
from dev.explain.world import pod
from dev.site.npu_json import CODES, FACTS, FIELDS
from trio_npu_dra.tools.cli.npu_wire import API_VERSION, explanation_wire
from trio_npu_dra.tools.cluster.objects import Pod

if TYPE_CHECKING:
    from tests.explain.conftest import Cluster

KNOWN = {str(code): {*code.facts} for codes in CODES for code in codes}
"""The facts of each code."""
WHOLE = {
    *("nodes[].devices[]", "device", "blocked", "claims[].devices[].taints[]"),
    *("claims[].devices[].attributes", "claims[].devices[].capacity", "claims[].devices[].share"),
    "claims[].requests[].steps[].losses[].devices[]",
}
"""Fields whose parts are named elsewhere, or by others."""


def fields_of(value: Any, path: str = "") -> Iterator[str]:
    """The fields of an answer; those of a code are its facts, which the code checks itself."""
    if isinstance(value, list):
        yield f"{path}[]"
        for one in value:
            yield from (name for name in fields_of(one, f"{path}[]") if name != f"{path}[]")
    else:
        if path:
            yield path
        if isinstance(value, dict) and path not in WHOLE:
            code = next((value[key] for key in ("reason", "step", "action") if key in value), "")
            facts = {"reason", "step", "action", *KNOWN[code]} if code in KNOWN else set()
            for name in value.keys() - facts:
                yield from fields_of(value[name], f"{path}.{name}".removeprefix("."))


def explained(reason: Reason) -> dict[str, Any]:
    """The answer about a pod that waits for that reason."""
    return explanation_wire(reason.explained(), Pod.model_validate(pod("train", "train")))


def test_each_field_of_an_explanation_is_documented(cluster: Cluster) -> None:
    """And each that is documented is there: of pods that wait, and of one that has devices."""
    answers = [explained(reason) for reason in REASONS]
    answers += [cluster.data("explain", "large"), cluster.data("explain", "train-0")]
    for answer in answers:
        answer["events"] = answer["events"] or cluster.data("why-unhealthy", "n2/npu-3")["events"]

    assert {name for answer in answers for name in fields_of(answer)} == FIELDS[
        "Explanation"
    ].keys()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ((), "Fleet"),
        (("node", "n1"), "Fleet"),
        (("why-unhealthy", "n2/npu-3"), "Diagnosis"),
        (("explain", "job/train"), "JobExplanation"),
    ],
)
def test_each_field_of_the_other_answers_is_documented(
    cluster: Cluster, words: tuple[str, ...], kind: str
) -> None:
    """Those of a device have a table of their own."""
    unhealthy = cluster.data("why-unhealthy", "n2/npu-3")
    cluster.api.objects += super_pods()
    answer = cluster.data(*words)

    assert (answer["apiVersion"], answer["kind"]) == (API_VERSION, kind)
    found = {name for name in fields_of(answer) if not name.startswith("events[].")}
    assert found == FIELDS[kind].keys()
    assert set(fields_of(unhealthy["device"])) == FIELDS["A device"].keys()


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.title)
def test_a_reason_is_a_code_with_facts(reason: Reason) -> None:
    """In plain types, of which JSON and YAML make the same."""
    answer = explained(reason)

    assert answer["why"]["reason"] in KNOWN
    assert json.loads(json.dumps(answer)) == answer
    assert yaml.safe_load(yaml.safe_dump(answer)) == answer


def test_the_pod_of_the_page_as_data(cluster: Cluster) -> None:
    """Codes, names and numbers say all that its sentence says."""
    answer = cluster.data("explain", "pod/large")
    (request,) = answer["claims"][0]["requests"]
    held, infer = request["steps"][5]["losses"]

    assert answer["subject"] == {"kind": "Pod", "namespace": "default", "name": "large"}
    assert answer["why"] == {
        "reason": "NotEnoughFree",
        "claim": "default/large",
        "request": "npu",
        "wanted": 4,
        "left": 2,
        "mostOnOneNode": 2,
    }
    assert answer["outcome"] == "Waits"
    assert [step["left"] for step in request["steps"]] == [12, 12, 12, 8, 8, 2]
    assert request["firstTooFew"] == 5
    assert request["steps"][3]["losses"][0]["values"] == {"memCapacity": 32 * 2**30}
    assert held["reason"] == infer["reason"] == "Held"
    assert held["holders"] == [{"claim": "default/train", "pods": ["train-0"], "podGroups": []}]
    assert [one["name"] for one in infer["devices"]] == ["npu-4", "npu-5"]
    assert len(answer["helps"]) == 3
    assert {
        "action": "PodsEnd",
        "claim": "default/infer",
        "users": ["pod infer-0"],
        "node": "n1",
    } in answer["helps"]
    assert answer["nodes"][0] == {"name": "n1", "why": {"reason": "ClaimsUnsatisfied"}}


def test_each_fact_is_documented() -> None:
    """Once, whatever code has it."""
    assert set().union(*KNOWN.values()) == FACTS.keys()
