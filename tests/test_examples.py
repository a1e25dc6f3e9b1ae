"""The examples have the form of resource.k8s.io/v1, and name only what exists.

An API server drops unknown fields of a claim, and no scheduler says that an attribute is misspelt:
the pod waits. So both are tested here, and the configs; `tests/e2e` runs each example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import pytest
import yaml
from pydantic import BaseModel

from dev.rig.boards import die, partition, split
from trio_npu_dra.agent.config.refusals import parse_config
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.tools.cluster.objects import (
    DeviceClaim,
    DeviceClassSpec,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)

M = TypeVar("M", bound=BaseModel)

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "k8s/examples").glob("*.yaml"))
DRIVER = "npu.huawei.com"
STANDARD = "resource.kubernetes.io"
OF_OTHERS = {"nic.example.com"}
"""Classes that an example says others make."""

FACT = re.compile(r'device\.(attributes|capacity)\["([^"]+)"\]\.(\w+)')


# --- the examples --------------------------------------------------------------------------------


@cache
def objects(file: Path) -> tuple[dict[str, Any], ...]:
    """What is in a file."""
    return tuple(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def everything() -> Iterator[dict[str, Any]]:
    """The objects of all examples, and of the base."""
    for file in (*EXAMPLES, ROOT / "k8s/base/deviceclass.yaml"):
        yield from objects(file)


def read(model: type[M], wire: dict[str, Any]) -> M:
    """A part of an object, all of whose fields exist."""
    found = model.model_validate(wire)
    assert found.model_dump(by_alias=True, mode="json", exclude_unset=True) == wire
    return found


def claims() -> dict[tuple[str, str], DeviceClaim]:
    """What each claim and each template asks for, by kind and name."""
    found = {}
    for about in everything():
        if about["kind"] in {"ResourceClaim", "ResourceClaimTemplate"}:
            is_template = about["kind"] == "ResourceClaimTemplate"
            spec = about["spec"]["spec"] if is_template else about["spec"]
            name = about["kind"], about["metadata"]["name"]
            assert name not in found, f"two examples have a {name}"
            asked = {key: one for key, one in spec["devices"].items() if key != "config"}
            found[name] = read(ResourceClaimSpec, {**spec, "devices": asked}).devices
            names = {name for request in found[name].requests for name in names_of(request)}
            parts = [*spec["devices"].get("config", ()), *asked.get("constraints", ())]
            assert {one for part in parts for one in part.get("requests", ())} <= names
    return found


def choices_of(request: DeviceRequest) -> list[ExactDeviceRequest]:
    """Its one form, or its choices."""
    assert bool(request.exactly) != bool(request.first_available)
    return [request.exactly] if request.exactly else [*request.first_available]


def names_of(request: DeviceRequest) -> set[str]:
    """The names by which constraints and configs can refer to it."""
    return {request.name, *(f"{request.name}/{one.name}" for one in request.first_available)}


def classes() -> dict[str, DeviceClassSpec]:
    """What each DeviceClass says, by name."""
    return {
        about["metadata"]["name"]: read(DeviceClassSpec, about["spec"])
        for about in everything()
        if about["kind"] == "DeviceClass"
    }


def pod_specs() -> dict[str, Any]:
    """The pods of all examples, of themselves or of a template, by file and kind."""
    return {
        f"{file.stem} {about['kind']}": about["spec"]
        if about["kind"] == "Pod"
        else about["spec"]["template"]["spec"]
        for file in EXAMPLES
        for about in objects(file)
        if about["kind"] in {"Pod", "Deployment", "StatefulSet", "DaemonSet", "Job"}
    }


def published() -> Iterator[Device]:
    """Devices of each type, with every fact that there is."""
    values: dict[str, Any] = {"int": 1, "str": "x", "bool": True}
    types = {name: str(hint) for name, hint in get_type_hints(Chip).items()}
    facts = {
        name: values[kind.removesuffix(" | None")]
        for name, kind in types.items()
        if kind.endswith(" | None") and kind.removesuffix(" | None") in values
    }
    dies = [replace(die(number), **facts) for number in (0, 1)]
    boards = [(dies, policy) for policy in MultiDiePolicy]
    boards.append(([split(dies[0], partition(100))], MultiDiePolicy.INDEPENDENT))
    for chips, policy in boards:
        board = Board(chips=tuple(chips), multi_die_policy=policy, driver_version="24.1.0")
        taints = TaintPolicy(domain=DRIVER)
        yield from build_pool(available(board, ()), board, taints, ServerFeatures()).devices


def facts_of_devices() -> set[tuple[str, str, str]]:
    """What expressions can name: attributes or capacity, whose, and the name."""
    found = set()
    for device in published():
        for name in device.attributes:
            domain, _, own = name.rpartition("/")
            found.add(("attributes", domain or DRIVER, own))
        found |= {("capacity", DRIVER, name) for name in device.capacity}
    return found


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.stem))
def test_an_example_says_why(file: Path) -> None:
    """In three lines at its top, which fit a screen."""
    lines = file.read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("#") for line in lines[:3])
    assert max(map(len, lines)) <= 102


def test_statefulsets_have_the_service_that_names_their_pods() -> None:
    """A headless one that they name, in their file: without it no pod has a name in the DNS."""
    (found,) = [
        (about, services)
        for file in EXAMPLES
        for documents in [list(yaml.safe_load_all(file.read_text(encoding="utf-8")))]
        for services in [[each for each in documents if each["kind"] == "Service"]]
        for about in documents
        if about["kind"] == "StatefulSet"
    ]
    spec, (service,) = found[0]["spec"], found[1]
    assert service["metadata"]["name"] == spec["serviceName"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    labels = spec["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_claims_have_the_form_of_the_api() -> None:
    """No field that an API server would drop, and no constraint on a request that is not there."""
    assert {kind for kind, _ in claims()} == {"ResourceClaim", "ResourceClaimTemplate"}


def test_configs_are_right() -> None:
    """As the driver judges them."""
    configs = [
        config["opaque"]["parameters"]
        for about in everything()
        for spec in [about.get("spec", {})]
        for part in (spec, spec.get("devices", {}), spec.get("spec", {}).get("devices", {}))
        for config in part.get("config", ())
        if config["opaque"]["driver"] == DRIVER
    ]
    assert len(configs) > 1
    assert all(parse_config(parameters, origin="example") for parameters in configs)


def test_claims_ask_for_classes_that_exist() -> None:
    """Ours, one of the examples, or one that an example says others make."""
    asked = {
        wanted.device_class_name
        for devices in claims().values()
        for request in devices.requests
        for wanted in choices_of(request)
    }
    assert asked <= classes().keys() | OF_OTHERS


def test_expressions_name_published_facts() -> None:
    """Every attribute and capacity is one that our devices can have."""
    selectors = [selector for about in classes().values() for selector in about.selectors]
    for devices in claims().values():
        for request in devices.requests:
            selectors += [each for wanted in choices_of(request) for each in wanted.selectors]
    named = {
        fact for each in selectors for fact in FACT.findall(each.cel.expression if each.cel else "")
    }

    assert {("attributes", DRIVER, "type"), ("capacity", DRIVER, "memCapacity")} <= named
    assert named <= facts_of_devices()


def test_constraints_name_published_attributes() -> None:
    """With the domain, without which the API server refuses them."""
    matched = {
        tuple((constraint.match_attribute or "").split("/"))
        for devices in claims().values()
        for constraint in devices.constraints
    }
    assert (STANDARD, "pcieRoot") in matched
    assert {("attributes", *name) for name in matched} <= facts_of_devices()


def test_classes_of_families_are_about_families_that_there_are() -> None:
    """The model that an expression compares with is one that is published."""
    text = " ".join(
        each.cel.expression for one in classes().values() for each in one.selectors if each.cel
    )
    models = set(re.findall(r'\.model == "(\w+)"', text))
    assert models
    assert models <= {family.value for family in ChipFamily}


@pytest.mark.parametrize("name", pod_specs())
def test_containers_name_claims_and_requests_that_exist(name: str) -> None:
    """A pod names a claim or template of the examples, and a container one of its requests."""
    spec, known = pod_specs()[name], claims()
    claimed = {
        each["name"]: known[
            ("ResourceClaim", each["resourceClaimName"])
            if "resourceClaimName" in each
            else ("ResourceClaimTemplate", each["resourceClaimTemplateName"])
        ]
        for each in spec.get("resourceClaims", [])
    }
    for container in spec["containers"]:
        for use in container["resources"].get("claims", []):
            requests = {request.name for request in claimed[use["name"]].requests}
            assert use.get("request", use["name"]) in requests | {use["name"]}
        assert container["resources"], "it asks for no NPU"


def test_every_example_is_run() -> None:
    """A test on a real cluster names its file."""
    tests = sorted((ROOT / "tests/e2e").glob("test_*.py"))
    text = "\n".join(test.read_text(encoding="utf-8") for test in tests)
    missing = [file.name for file in EXAMPLES if not re.search(rf'["/]{file.stem}\b', text)]
    assert missing == []
