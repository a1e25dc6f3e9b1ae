"""docs/reference/kubectl-npu.md: the fields and codes of `kubectl npu -o json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from dev.explain.reasons import REASONS
from trio_npu_dra.tools.cli.npu_wire import API_VERSION, explanation_wire
from trio_npu_dra.tools.cluster import said
from trio_npu_dra.tools.cluster.objects import Pod

_DEVICE: Final = {
    "name": "of the device",
    "pool": "its pool",
    "driver": "its driver",
}
_TAINT: Final = {
    "key": "of the taint",
    "value": "its value",
    "effect": "`NoSchedule`, `NoExecute` or `None`",
    "since": "when it was added, in RFC 3339",
}
_EVENT: Final = {
    "time": "when it was last seen, in RFC 3339",
    "type": "`Normal` or `Warning`",
    "reason": "of the Event",
    "message": "its text, for people",
    "count": "how often it happened",
}
_HOLDER: Final = {
    "claim": "`NAMESPACE/NAME` of a claim that has it",
    "pods[]": "the pods of that namespace that may use the claim",
    "podGroups[]": "the PodGroups there of which all pods may",
}
_ROW: Final = {
    **_DEVICE,
    "model": "`910B4`; of another driver what it calls the product",
    "memoryBytes": "its memory",
    "ring": "its HCCS domain, the attribute `topologyGroup`",
    "numaNode": "its NUMA node",
    "addresses[]": "of its RoCE port, or of its dies; while a claim has the whole device",
    "published": "whether it is in a ResourceSlice; else a claim holds what was withdrawn",
    "state": "`Free`, `Used`, or `Shared` if shares or partitions of it are in use",
    "unhealthy": "whether a taint keeps claims away",
    "taints[]": "its taints, those of DeviceTaintRules too",
    **{f"taints[].{name}": meaning for name, meaning in _TAINT.items()},
    "heldBy[]": "who holds it; of an NPU also the holders of its partitions",
    **{f"heldBy[].{name}": meaning for name, meaning in _HOLDER.items()},
    "heldBy[].device": "what was allocated: the device, or a partition of it",
    "heldBy[].request": "the request of the claim",
    "heldBy[].adminAccess": "whether the claim only looks on, and takes nothing",
}
_ALL: Final = {
    "apiVersion": f"`{API_VERSION}`",
    "kind": "the heading of this table",
    "notWeighed[]": "what the answer does not weigh: [codes](#what-was-not-weighed)",
}
FIELDS: Final = {
    "Fleet": {
        **_ALL,
        "nodes[]": "the nodes with devices",
        "nodes[].name": "of the node; `pool NAME` for devices that are not of one node",
        "nodes[].total": "how many devices it has, without partitions",
        "nodes[].free": "how many of them a claim can have as a whole",
        "nodes[].used": "how many are in use, wholly or in part",
        "nodes[].unhealthy": "how many have a taint that keeps claims away",
        "nodes[].rings[]": "its HCCS domains",
        "nodes[].rings[].name": "of the ring",
        "nodes[].rings[].size": "how many devices it has",
        "nodes[].rings[].free": "how many of them are free",
        "nodes[].rings[].whole": "whether a claim can have all of it",
        "nodes[].flaws[]": "why nothing is allocated there: "
        "[codes](#why-no-device-of-a-pool-is-allocated)",
        "nodes[].devices[]": "its [devices](#a-device)",
    },
    "Explanation": {
        **_ALL,
        "subject": "what is explained",
        "subject.kind": "`Pod` or `ResourceClaim`",
        "subject.namespace": "its namespace",
        "subject.name": "its name",
        "outcome": "[what becomes of it](#what-becomes-of-a-pod-or-a-claim)",
        "why": "the reason: [codes](#why-a-pod-or-a-claim-has-what-it-has)",
        "message": "the reason for people",
        "claims[]": "its claims",
        "claims[].name": "`NAMESPACE/NAME`",
        "claims[].allocated": "whether it has devices",
        "claims[].pods[]": "the pods that may use them",
        "claims[].podGroups[]": "the PodGroups of which all pods may",
        "claims[].devices[]": "its devices",
        **{f"claims[].devices[].{name}": meaning for name, meaning in _DEVICE.items()},
        "claims[].devices[].request": "for which request; `REQUEST/SUBREQUEST` if it had choices",
        "claims[].devices[].attributes": "those that say what it is, with their names",
        "claims[].devices[].capacity": "its capacities, with their names",
        "claims[].devices[].adminAccess": "whether the claim only looks on",
        "claims[].devices[].share": "the amounts of its share; null for the whole device",
        "claims[].devices[].published": "whether it is in a ResourceSlice",
        "claims[].devices[].taints[]": "its taints, as those of [a device](#a-device)",
        "claims[].requests[]": "its requests and subrequests, with what they can choose from",
        "claims[].requests[].name": "`REQUEST`, or `REQUEST/SUBREQUEST`",
        "claims[].requests[].deviceClass": "its class",
        "claims[].requests[].count": "how many devices it wants; null for all that match",
        "claims[].requests[].firstTooFew": "the index of the first step that leaves too few; "
        "null if none does",
        "claims[].requests[].steps[]": "the steps in the order of the search: "
        "[codes](#what-is-true-of-the-devices-that-a-step-leaves)",
        "claims[].requests[].steps[].left": "how many devices are left after it",
        "claims[].requests[].steps[].mostOnOneNode": "how many of them one node can have",
        "claims[].requests[].steps[].undecided": "whether some are left because this program "
        "cannot tell",
        "claims[].requests[].steps[].losses[]": "what it takes away, with the reason: "
        "[codes](#why-a-step-takes-devices-away)",
        "claims[].requests[].steps[].losses[].devices[]": "name, pool and driver of each",
        "nodes[]": "each node",
        "nodes[].name": "its name",
        "nodes[].why": "why it cannot serve the pod: "
        "[codes](#what-a-node-says-of-a-pod-and-its-claims); null if it can",
        "helps[]": "what would help: [codes](#what-would-help-by-itself)",
        "events[]": "the last five Events about it, the newest last",
        **{f"events[].{name}": meaning for name, meaning in _EVENT.items()},
    },
    "JobExplanation": {
        **_ALL,
        "subject": "what is explained",
        "subject.kind": "`Job`, `JobSet` or `LeaderWorkerSet`",
        "subject.namespace": "its namespace",
        "subject.name": "its name",
        "outcome": "[what becomes of it](#what-becomes-of-a-pod-or-a-claim)",
        "why": "the reason: [codes](#why-a-pod-or-a-claim-has-what-it-has)",
        "message": "the reason for people",
        "superPods[]": "the super pods with devices",
        "superPods[].id": "the attribute `superPodId`; null for all nodes that are in none",
        "superPods[].placed": "how many pods of the job are there",
        "superPods[].fits": "for how many of those that wait there is room",
        "superPods[].nodes[]": "its nodes",
        "superPods[].nodes[].name": "of the node",
        "superPods[].nodes[].total": "how many devices it has, without partitions",
        "superPods[].nodes[].free": "how many of them a claim can have as a whole",
        "blocked": "of the first pod that does not fit into the super pod with most room, once the "
        "others have their devices, what [an explanation](#explanation) has from `outcome` to "
        "`helps`; null if there is none",
    },
    "Diagnosis": {
        **_ALL,
        "node": "where the device is",
        "device": "the [device](#a-device)",
        "events[]": "the last ten Events of the node that name it, as in an explanation",
    },
    "A device": _ROW,
}
"""What each field means, by kind; `[]` marks the items of a list."""
_COMMANDS: Final = {
    "Fleet": "`kubectl npu` and `kubectl npu node`",
    "Explanation": "`kubectl npu explain` of a pod or a claim",
    "JobExplanation": "`kubectl npu explain` of a job",
    "Diagnosis": "`kubectl npu why-unhealthy`",
}
FACTS: Final = {
    "capacities": "amounts by the names of capacities; of `CapacityMissing` the names",
    "claim": "`NAMESPACE/NAME`",
    "constraint": "`matchAttribute` or `distinctAttribute`, and the attribute",
    "constraints": "a list of such, each with its `claim`",
    "count": "a number",
    "counter": "its name",
    "counterSet": "its name",
    "device": "its name",
    "deviceClass": "its name",
    "driver": "its name",
    "drivers": "their names",
    "error": "what a library or the API server says, for people",
    "event": "the reason of the Event",
    "expression": "the CEL, in one line",
    "fits": "how many of them can be there together",
    "gates": "their names",
    "holders": "a list of claims, each with `claim`, `pods` and `podGroups`",
    "kind": "of the object",
    "label": "its key",
    "left": "what is left: devices, or an amount; of `ShareTooSmall` amounts by name",
    "minor": "the N of Kubernetes 1.N",
    "mostOnOneNode": "how many of `left` one node can have",
    "name": "of the object, with its namespace",
    "node": "its name",
    "nodes": "their names",
    "obstacles": "a list of [codes](#why-a-node-does-not-take-the-pod)",
    "phase": "of the pod",
    "pods": "how many",
    "pool": "its name",
    "request": "`REQUEST`, or `REQUEST/SUBREQUEST`",
    "resource": "its name; of what was not weighed the plural of a kind",
    "scheduler": "its name",
    "superPod": "its id; null for the nodes that are in none",
    "superPods": "such ids",
    "slices": "how many are published",
    "taint": "`key`, `value`, `effect` and `since`",
    "taints": "a list of such",
    "template": "the name of the ResourceClaimTemplate",
    "total": "all there is of it",
    "users": "a list of `pod NAME` and `PodGroup NAME`",
    "value": "of the label, as the pod wants it; of a fact, as the node has it",
    "values": "by the names of attributes and capacities",
    "verb": "`get` or `list`",
    "wanted": "how many there should be; null for all devices that match",
}
"""What the facts of codes are."""
_NOTES: Final = {
    said.Lost: "A step takes devices away also by what their pool or their node says: "
    "[codes](#why-no-device-of-a-pool-is-allocated), `NodeRefusesPod`.",
}
CODES: Final = (
    said.Outcome,
    said.Why,
    said.Step,
    said.Lost,
    said.Flaw,
    said.OfNode,
    said.Obstacle,
    said.Action,
    said.Doubt,
)
_HEAD: Final = f"""\
`-o json` and `-o yaml` give the same data, for programs. It is stable: as long as `apiVersion` is
`{API_VERSION}`, fields and codes keep their names and meanings, and new ones may come; ignore
those that you do not know. Only `message` and `error` are for people, and may change.

An unknown fact is null. Amounts are numbers: bytes, CPUs, counts. Codes are words in CamelCase: an
object has its code as `reason` (a step of the search as `step`, what would help as `action`), and
beside it the facts that the tables name. `kubectl npu explain train -o json` begins so:
"""


def page() -> str:
    """The page."""
    return "".join(_parts())


def _example() -> str:
    """The beginning of an explanation."""
    (held,) = (reason for reason in REASONS if reason.title == "all are held")
    wire = explanation_wire(held.explained(), Pod.model_validate(held.pod))
    first = ("apiVersion", "kind", "subject", "outcome", "why", "message")
    return json.dumps({name: wire[name] for name in first}, indent=2)


def _parts() -> Iterator[str]:
    yield "# The data of `kubectl npu -o json`\n\n"
    yield "<!-- Made by `just generated` from the code: change it there. -->\n\n"
    yield f"{_HEAD}\n```json\n{_example()}\n```\n"
    for kind, fields in FIELDS.items():
        yield f"\n## {kind}\n\n"
        if kind in _COMMANDS:
            yield f"By {_COMMANDS[kind]}.\n\n"
        yield "| field | is |\n|---|---|\n"
        yield from (f"| `{name}` | {meaning} |\n" for name, meaning in fields.items())
    yield "\n## Codes\n"
    for codes in CODES:
        yield f"\n### {str(codes.__doc__).rstrip('.')}\n\n| code | means | facts |\n|---|---|---|\n"
        for code in codes:
            facts = ", ".join(f"`{name}`" for name in code.facts) or "-"
            yield f"| `{code}` | {code.meaning} | {facts} |\n"
        if codes in _NOTES:
            yield f"\n{_NOTES[codes]}\n"
    yield "\n### Facts\n\n| fact | is |\n|---|---|\n"
    yield from (f"| `{name}` | {meaning} |\n" for name, meaning in FACTS.items())
