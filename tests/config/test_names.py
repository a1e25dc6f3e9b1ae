"""`npu-dra validate` finds names that nothing has, by line, and takes what is right for right."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from dev.explain.selectors import ADMITTING
from tests.test_examples import DRIVER, facts_of_devices
from trio_npu_dra.agent.config.model import NpuConfig
from trio_npu_dra.tools.manifests import inspect
from trio_npu_dra.tools.names import CLASSES, KNOWN, unknown_class

ROOT = Path(__file__).parents[2]
MANIFESTS = sorted((*ROOT.glob("k8s/**/*.yaml"), *ROOT.glob("tests/e2e/**/*.yaml")))
HERE = f'device.attributes["{DRIVER}"]'
CONFIG = "opaque config in the ResourceClaimTemplate"
FIELDS = (
    f"known: {', '.join(field.alias or name for name, field in NpuConfig.model_fields.items())}"
)
HAS = f'device.capacity["{DRIVER}"]'


def remarks(text: str) -> list[tuple[int, str]]:
    """The problems of a file."""
    return [(one.line, one.text) for one in inspect(dedent(text).encode()).problems]


def about(expression: str) -> list[str]:
    """What is said of a class with that selector."""
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    one = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": spec}
    return [remark.text for remark in inspect(yaml.safe_dump(one).encode()).problems]


def test_the_known_names_are_those_that_are_published() -> None:
    """And `shares`, which devices have by a flag."""
    found = {
        (kind, name if domain == DRIVER else f"{domain}/{name}")
        for kind, domain, name in facts_of_devices()
    }
    found.add(("capacity", "shares"))
    assert {(kind, name) for kind, names in KNOWN.items() for name in names} == found


def test_the_known_classes_are_those_that_come_with_the_driver() -> None:
    """Those with its domain; others may be called so by anybody."""
    objects = [
        one for file in MANIFESTS for one in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    names = {one["metadata"]["name"] for one in objects if one and one.get("kind") == "DeviceClass"}
    assert {name for name in names if name.endswith(DRIVER)} == CLASSES


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_our_manifests_are_right(file: Path) -> None:
    """No class of them is unknown either, but for those of other drivers."""
    report = inspect(file.read_bytes())
    assert report.problems == []
    assert [one for one in report.asked if unknown_class(one.text, ())] == []


def test_unknown_names_have_their_lines() -> None:
    """In the order of lines, whatever kind of name it is; also in a text of several lines."""
    assert remarks("""\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaimTemplate
        spec:
          spec:
            devices:
              config:
              - requests: [nic]
                opaque:
                  driver: npu.huawei.com
                  parameters: {apiVersion: npu.huawei.com/v1alpha1, kind: NpuConfig, x: 1}
              requests:
              - name: npu
                exactly:
                  deviceClassName: npu.huawei.com
                  selectors:
                  - cel:
                      expression: >-
                        device.driver != "a.modles.example" &&
                        device.attributes["npu.huawei.com"].modle == "Ascend910B"
                  capacity: {requests: {memCapcity: 8Gi}}
              - name: any
                firstAvailable:
                - name: large
                  deviceClassName: npu.huawei.com
                  selectors: [{cel: {expression: 'has(device.capacity["npu.huawei.com"].cores)'}}]
              constraints:
              - requests: [npu, any, any/large, any/small, npus]
                matchAttribute: npu.huawei.com/superpodid
              - distinctAttribute: npu.huawei.com/cardID
        """) == [
        (7, "there is no request nic"),
        (10, f"{CONFIG}: x is not known to this driver: remove it ({FIELDS})"),
        (19, f"{HERE}: no device has the attribute modle; did you mean model?"),
        (20, "capacity.requests: no device has the capacity memCapcity; did you mean memCapacity?"),
        (25, f"{HAS}: no device has the capacity cores; did you mean aiCores?"),
        (27, "there is no request any/small"),
        (27, "there is no request npus; did you mean npu?"),
        (28, "matchAttribute: no device has the attribute superpodid; did you mean superPodId?"),
        (29, "distinctAttribute: no device has the attribute cardID; did you mean cardId?"),
    ]


def test_requests_of_earlier_versions_are_looked_at() -> None:
    """They have themselves what `exactly` has since v1beta2."""
    assert remarks(f"""\
        apiVersion: resource.k8s.io/v1beta1
        kind: ResourceClaim
        spec:
          devices:
            requests:
            - name: npu
              deviceClassName: npu.huawei.com
              selectors:
              - cel: {{expression: '{HERE}.ring == "ring-0"'}}
        """) == [(9, f"{HERE}: no device has the attribute ring")]


@pytest.mark.parametrize(
    ("expression", "end"),
    [
        (f"{HERE}.modle == 1", "modle; did you mean model?"),
        (f"{HERE}.?modle.hasValue()", "modle; did you mean model?"),
        (f"{HERE}['modle'] == 1", "modle; did you mean model?"),
        (f'{HERE}[?"modle"].hasValue()', "modle; did you mean model?"),
        (f'device.attributes[?"{DRIVER}"].?modle.hasValue()', "modle; did you mean model?"),
        (f'"modle" in {HERE} && true', "modle; did you mean model?"),
        (f"{HERE}.pciBusID == 'x'", "pciBusID; did you mean resource.kubernetes.io/pciBusID?"),
        (f"{HERE}.memCapacity == 1", "memCapacity; it is in device.capacity"),
        (f"{HERE}.modle == 1 || {HERE}.modle == 2", "modle; did you mean model?"),
    ],
)
def test_an_attribute_that_no_device_has_is_told_once(expression: str, end: str) -> None:
    """However CEL names it."""
    assert about(expression) == [f"{HERE}: no device has the attribute {end}"]


@pytest.mark.parametrize(
    "expression",
    [
        f"{HERE}.size() > 1 && {HERE}.exists(name, name == 'modle')",
        f"cel.bind(a, {HERE}, a.model == 'Ascend910B')",
        'device.attributes["nic.example.com"].speed > 1',
        "device.attributes['resource.kubernetes.io'].whatever == 1",
        f"my.{HERE}.modle == 1",
        f"'{HERE}.modle' == device.driver // {HERE}.modle",
        f'{HERE}["mod" + "le"] == 1',
        "§",
        f"[1, 2].exists(one, one in {HERE})",
        *(
            re.sub(r"\b(cores|ok|ring|nothing)\b", "model", one.replace("memory", "memCapacity"))
            for one in ADMITTING
        ),
    ],
)
def test_what_may_be_right_is_taken_for_right(expression: str) -> None:
    """Other domains, other uses of the map, texts, comments, and what is no CEL."""
    assert about(expression) == []


@pytest.mark.parametrize(
    ("name", "end"),
    [
        (DRIVER, None),
        ("ascend910b.npu.huawei.com", None),
        ("mine.npu.huawei.com", None),
        ("gpu.nvidia.com", None),
        ("team-npu", None),
        ("npu.hauwei.com", "; did you mean npu.huawei.com?"),
        ("ascend910.b.npu.huawei.com", "; did you mean ascend910b.npu.huawei.com?"),
        ("ascend-950.npu.huawei.com", "; did you mean ascend950.npu.huawei.com?"),
    ],
)
def test_a_class_that_may_be_none_is_doubted(name: str, end: str | None) -> None:
    """One with our domain that neither the driver nor the files bring, or a likely slip."""
    doubt = unknown_class(name, {"mine.npu.huawei.com"})
    expected = f"DeviceClass {name} is neither the driver's nor in these files{end}"
    assert doubt == (expected if end is not None else "")
