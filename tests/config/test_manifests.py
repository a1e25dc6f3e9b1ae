"""Configs are found in manifests as people write them, and what is wrong has its line."""

from __future__ import annotations

from textwrap import dedent

import pytest
import yaml

from dev.config.cases import CASES, WRONG
from trio_npu_dra.kit.base.errors import UnreadableManifest
from trio_npu_dra.tools.manifests import Report, inspect

HEAD = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nspec:\n  config:\n"
CONFIG = """\
  - opaque:
      driver: npu.huawei.com
      parameters:
        apiVersion: npu.huawei.com/v1alpha1
        kind: NpuConfig
"""


def found(text: str) -> Report:
    """The report about a manifest."""
    return inspect(dedent(text).encode())


def of_class(*lines: str) -> list[tuple[int, str]]:
    """Lines and words of what is wrong with a class, whose parameters end with these lines."""
    text = HEAD + CONFIG + "".join(f"        {line}\n" for line in lines)
    return [(one.line, one.text.partition(": ")[2]) for one in inspect(text.encode()).problems]


@pytest.mark.parametrize("name", CASES)
def test_validate_decides_as_the_driver_does(name: str) -> None:
    """With the driver's messages, one line for each problem."""
    config = {"opaque": {"driver": "npu.huawei.com", "parameters": CASES[name].parameters}}
    about = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": {"devices": {"config": [config]}},
    }
    report = inspect(yaml.safe_dump(about, allow_unicode=True, sort_keys=False).encode())

    told = [remark.text for remark in report.problems]
    first = [f"opaque config in the ResourceClaim: {text}" for text in CASES[name].words[:3]]
    assert report.configs == 1
    assert told[:3] == first
    assert bool(told) == (name in WRONG)


def test_configs_are_found_where_each_kind_has_them() -> None:
    """In claims, templates and classes of any version, in lists and several documents."""
    report = found("""\
        apiVersion: resource.k8s.io/v1
        kind: ResourceClaimTemplate
        spec: {spec: {devices: {config: [{opaque: {driver: npu.huawei.com}}]}}}
        ---
        apiVersion: v1
        kind: List
        items:
        - apiVersion: resource.k8s.io/v1beta1
          kind: ResourceClaim
          spec:
            devices:
              config:
              - opaque: {driver: gpu.example.com, parameters: 5}
              - opaque:
                  driver: npu.huawei.com
                  parameters: {kind: 1}
        ---
        """)
    assert report.configs == 2
    assert [(one.line, one.text.partition(": ")[0]) for one in report.problems] == [
        (3, "opaque config in the ResourceClaimTemplate"),
        (16, "opaque config in the ResourceClaim"),
        (16, "opaque config in the ResourceClaim"),
    ]


def test_a_problem_has_the_line_of_the_field() -> None:
    """Or of the item, or of the object that lacks a field."""
    lines = ("driverMounts: off", "env:", "- name: A", "  value: x", "- {name: 1A}", "x: 1")
    assert [(line, text.partition(" is ")[0]) for line, text in of_class(*lines)] == [
        (14, "env[1].name"),
        (14, "env[1].value"),
        (15, "x"),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *(("yes", "true"), ("y", "true"), ("On", "true"), ("off", "false"), ("~", "null")),
        *(("", "null"), ("0x1F", "31"), ("017", "15"), ("1_000", "1000"), ("1e3", "a number")),
        *((".5", "a number"), (".inf", "a number"), ("[]", "a list"), ("{}", "an object")),
    ],
)
def test_values_without_quotes_are_read_as_kubectl_reads_them(value: str, shown: str) -> None:
    """A variable needs a text."""
    ((_, text),) = of_class("env:", "- name: A", f"  value: {value}")
    assert text.startswith(f"env[0].value is {shown}:")


@pytest.mark.parametrize("value", ["1:30", "2026-11-22", "1.2.3", "yEs", '"1"', "!!str 1", "a: b"])
def test_other_values_are_texts(value: str) -> None:
    """A time and a date too, unlike in YAML 1.1."""
    value = value if ": " not in value else f"'{value}'"
    assert of_class("env:", "- name: A", f"  value: {value}") == []


def test_anchors_and_merges_are_followed() -> None:
    """The line is where the text is."""
    assert of_class("env:", "- &a {name: A, value: x}", "- {<<: *a, name: B}") == []
    assert of_class("env:", "- &a {name: A, value: x}", "- {<<: *a}") == [
        (11, 'env[1].name is "A", as is env[0].name: write each name once')
    ]


def test_a_field_twice_is_told() -> None:
    """YAML and kubectl would take the last without a word."""
    assert of_class("env: []", "env:", "- {name: A, value: x, value: y}") == [
        (11, "env is there twice: remove one"),
        (12, "env[0].value is there twice: remove one"),
    ]


def test_names_of_fields_are_texts() -> None:
    """As in JSON, whatever they look like."""
    ((line, text),) = of_class("on: 1")
    assert (line, text.partition(" is ")[0]) == (10, "on")


def test_other_objects_are_passed_over() -> None:
    """A pod is none of them: it names claims, and has nothing to judge."""
    report = found("""\
        {apiVersion: v1, kind: Pod}
        --- # nothing
        ---
        {apiVersion: apps/v1, kind: Deployment}
        ---
        {apiVersion: example.com/v1, kind: ResourceClaim}
        ---
        just words
        """)
    assert (report.configs, report.problems) == (0, [])
    assert [(one.line, one.text) for one in report.passed_over] == [
        (4, "Deployment of apps/v1"),
        (6, "ResourceClaim of example.com/v1"),
        (8, "no object of Kubernetes"),
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a: 1\nb: [", r"^3: .*expected the node content|^2: expected the node content"),
        (b"a: 1\n\xff", "^1: .*invalid start byte"),
        (b"a: *b", "^1: found undefined alias"),
        (b"[" * 5000, "^1: it is nested too deeply"),
        (HEAD.encode() + b"  - opaque: {driver: npu.huawei.com, parameters: " + b"9" * 5000, "^5:"),
    ],
    ids=["syntax", "bytes", "alias", "depth", "number"],
)
def test_a_file_without_yaml_is_unreadable(content: bytes, words: str) -> None:
    """The message begins with the line, as far as it is known."""
    with pytest.raises(UnreadableManifest, match=words):
        inspect(content)


def test_characters_of_two_escapes_are_read() -> None:
    """As JSON that was written in ASCII has them; half of one is what Go makes of it."""
    assert of_class(r'env: [{name: A, value: "\ud83d\ude00"}, {name: B, value: "\ud83d"}]') == []
    ((_, text),) = of_class(r'env: [{name: "\ud83d\ude00", value: ""}]')
    assert text.startswith('env[0].name is "\N{GRINNING FACE}"')


def test_json_is_read_too() -> None:
    """It is YAML."""
    text = '{"apiVersion":"resource.k8s.io/v1","kind":"DeviceClass","spec":{"config":[]}}'
    assert inspect(text.encode()) == Report()


def test_an_object_that_contains_itself_ends() -> None:
    """Anchors can do that; no JSON can."""
    with pytest.raises(UnreadableManifest, match="nested too deeply"):
        inspect((HEAD + CONFIG + "        env: &a [*a]\n").encode())
