"""What the stand-in API server makes of slices, version by version and feature by feature.

The messages are those of validation.go in Kubernetes 1.34.3 and 1.36.3.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from trio_npu_dra.lab.standins.api_rules import Kubernetes, admit_slice
from trio_npu_dra.lab.standins.api_status import ApiRefusal

Wire = dict[str, Any]

OF_34 = Kubernetes(minor=34)
WITHOUT = Kubernetes(taints=False, counters=False)
SET = {"name": "npu-0", "counters": {"memory": {"value": "64Gi"}}}
CONSUMING = {
    "name": "half",
    "consumesCounters": [{"counterSet": "npu-0", "counters": {"memory": {"value": "32Gi"}}}],
}


def wire(**spec: Any) -> Wire:
    """A slice as it is sent."""
    return {
        "kind": "ResourceSlice",
        "apiVersion": "resource.k8s.io/v1",
        "metadata": {"name": "n"},
        "spec": {"pool": {"resourceSliceCount": 1}, **copy.deepcopy(spec)},
    }


def tainted(effect: str, count: int = 1) -> Wire:
    """A slice with one device."""
    taints = [{"key": f"a/{number}", "effect": effect} for number in range(count)]
    return wire(devices=[{"name": "d", "taints": taints}])


def consuming(counter_set: str) -> Wire:
    """A slice with one device that takes `c0` from a counter set."""
    taken = [{"counterSet": counter_set, "counters": {"c0": {"value": "1"}}}]
    return wire(devices=[{"name": "d", "consumesCounters": taken}])


@pytest.mark.parametrize(
    ("kubernetes", "sent"),
    [
        (Kubernetes(), tainted("None")),
        (Kubernetes(minor=35), tainted("None", 16)),
        (OF_34, tainted("NoSchedule", 4)),
        (Kubernetes(), wire(sharedCounters=[SET])),
        (Kubernetes(), wire(devices=[CONSUMING])),
        (OF_34, wire(sharedCounters=[SET], devices=[CONSUMING])),
        (OF_34, wire(sharedCounters=[SET])),
    ],
)
def test_what_a_version_knows_is_kept(kubernetes: Kubernetes, sent: Wire) -> None:
    """Nothing is dropped; only times are added."""
    stored = copy.deepcopy(sent)
    admit_slice(stored, kubernetes=kubernetes)
    for device in stored["spec"].get("devices", ()):
        for taint in device.get("taints", ()):
            assert taint.pop("timeAdded")
    assert stored == sent


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (tainted("None"), 'taints[0].effect: Unsupported value: "None"'),
        (tainted("NoExecute", 5), "spec.devices[0].taints: Too many: 5"),
        (wire(devices=[CONSUMING]), 'consumesCounters[0].counterSet: Invalid value: "npu-0"'),
        (
            wire(sharedCounters=[SET], devices=consuming("npu-0")["spec"]["devices"]),
            'spec.devices[0].consumesCounters[0].counters: Invalid value: "c0"',
        ),
        (
            wire(sharedCounters=[{"name": "s", "counters": {f"c{n}": {} for n in range(33)}}]),
            "spec.sharedCounters: Invalid value: 33",
        ),
        (
            wire(sharedCounters=[{"name": "s", "counters": {"aiCores": {"value": "1"}}}]),
            'spec.sharedCounters[0].counters[aiCores]: Invalid value: "aiCores"',
        ),
        (wire(sharedCounters=[SET, SET]), 'spec.sharedCounters[1].name: Duplicate value: "npu-0"'),
    ],
)
def test_what_1_34_does_not_know_is_refused(sent: Wire, words: str) -> None:
    """With all of the slice; the messages of 1.36 are in the scenarios of conformance."""
    with pytest.raises(ApiRefusal, match=re.escape(words)) as refused:
        admit_slice(sent, kubernetes=OF_34)
    assert refused.value.code == 422


def test_features_that_are_off_drop_their_fields() -> None:
    """Before validation: what is dropped cannot be wrong."""
    sent = tainted("Never")
    sent["spec"]["devices"].append(CONSUMING)
    admit_slice(sent, kubernetes=WITHOUT)
    assert sent["spec"]["devices"] == [{"name": "d"}, {"name": "half"}]
    alone = wire(sharedCounters=[SET])
    admit_slice(alone, kubernetes=WITHOUT)
    assert alone["spec"].keys() == {"pool"}


@pytest.mark.parametrize(
    ("old", "sent"),
    [
        (tainted("NoSchedule"), tainted("NoExecute")),
        (wire(devices=[CONSUMING]), consuming("other")),
        (wire(sharedCounters=[SET]), wire(devices=[CONSUMING])),
    ],
)
def test_a_slice_that_uses_a_feature_keeps_it(old: Wire, sent: Wire) -> None:
    """After the feature is switched off, as the real server has it."""
    (device,) = sent["spec"]["devices"]
    fields = set(device)
    admit_slice(sent, old, kubernetes=WITHOUT)
    assert set(device) == fields
