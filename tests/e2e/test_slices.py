"""The slices that the driver publishes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dev.cluster.driver import NPUS, Driver

pytestmark = pytest.mark.cluster

SAMPLE = yaml.safe_load((Path(__file__).parent / "guide/sample-slice.yaml").read_text())
FURTHER = {
    "type": {"string": "npu"},
    "model": {"string": "Ascend910B"},
    "cardId": {"int": 0},
    "deviceId": {"int": 0},
    "logicId": {"int": 0},
    "driverVersion": {"version": "24.1.0-rc2"},
    "deviceShare": {"bool": False},
    "uuid": {"string": "15C0C977-00404B31-A5120C63-26140000-10830001"},
    "resource.kubernetes.io/numaNode": {"int": 6},
    "resource.kubernetes.io/pciBusID": {"string": "0000:c1:00.0"},
    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:c0"},
}


def facts(value: object, path: str = "") -> dict[str, object]:
    """The leaves of an object by their paths."""
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = {str(index): item for index, item in enumerate(value)}.items()
    else:
        return {path: value}
    return {
        name: leaf for key, item in parts for name, leaf in facts(item, f"{path}/{key}").items()
    }


@pytest.mark.every_version
def test_slice_says_what_the_guides_sample_says(driver: Driver, notes: list[str]) -> None:
    """Every field of the guide's sample is there with its value, our node's name in it.

    The pool has npu-0 to npu-7, in the order of their physical ids.
    """
    assert list(driver.devices()) == [f"npu-{number}" for number in range(NPUS)]
    (published,) = driver.slices()
    node = driver.cluster.get("node", driver.cluster.node.name)
    assert node is not None
    name = node["metadata"]["name"]
    sample = json.loads(json.dumps(SAMPLE).replace('"master', f'"{name}'))
    ours, guides = facts(published), facts(sample)
    for path in sorted(
        guides.keys() | {path for path in ours if path.startswith("/spec/devices/0")}
    ):
        notes.append(f"slice {path:72} guide {guides.get(path, '-')!s:38} ours {ours.get(path)}")

    own = {"/metadata/creationTimestamp", "/metadata/name", "/metadata/generateName"}
    guides |= {
        "/metadata/ownerReferences/0/uid": node["metadata"]["uid"],
        "/metadata/generation": published["metadata"]["generation"],
        "/spec/pool/generation": published["spec"]["pool"]["generation"],
    }
    assert {path: ours.get(path) for path in guides.keys() - own} == {
        path: value for path, value in guides.items() if path not in own
    }
    for path in ("/metadata/name", "/metadata/generateName"):
        assert str(ours[path]).startswith(f"{name}-npu.huawei.com-")


def test_device_has_our_further_attributes(driver: Driver) -> None:
    """npu-0 has the guide's attributes and those that our documentation lists, and no more."""
    device = driver.devices()["npu-0"]
    guides = SAMPLE["spec"]["devices"][0]["attributes"]
    assert device["attributes"] == {**guides, **FURTHER}
    assert device["capacity"] == {"memCapacity": {"value": "32Gi"}, "aiCores": {"value": "20"}}


def test_inspect_shows_what_is_published(driver: Driver) -> None:
    """`npu-dra inspect`, run with the daemon's own view of the host, prints the same devices."""
    shown = driver.execute("npu-dra", "inspect", "--output=json")
    (published,) = driver.slices()
    (seen,) = json.loads(shown)["items"]
    assert seen["spec"]["devices"] == published["spec"]["devices"]
    assert seen["spec"]["nodeName"] == driver.cluster.node.name
