"""From device plugin to DRA and back on one node, under running pods (docs/migration.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from dev.cluster.api import Object
from dev.cluster.deploy import ROOT
from dev.cluster.driver import NAME, NAMESPACE, NPUS, Driver
from tests.e2e.faults import number
from tests.e2e.modes import assert_as_documented
from tests.e2e.resources import FLAG, RESOURCE, Plugin, user
from tests.e2e.space import EXAMPLES, Space, claim, pod

pytestmark = [pytest.mark.cluster, pytest.mark.every_version, pytest.mark.since("1.36")]

OVERLAY = ROOT / "k8s/overlays/device-plugin"
MANIFEST = (EXAMPLES / "device-plugin-pod.yaml").read_text(encoding="utf-8")
CLASS = (EXAMPLES / "ascend910-by-dra.yaml").read_text(encoding="utf-8")
SOME = 4
"""How many NPUs some-npus.yaml leaves to the resource."""


@pytest.fixture
def plugin(driver: Driver, space: Space) -> Iterator[Plugin]:
    """The plugin is off before and after."""
    yield Plugin(driver)
    space.clear()
    driver.set_environment(f"{FLAG}-")


def patch(driver: Driver, name: str, *, pool: int) -> None:
    """Apply a patch of the overlay; then so many NPUs are in the pool."""
    target = ("daemonset", NAME, "--namespace", NAMESPACE)
    driver.cluster.kubectl("patch", *target, "--patch-file", OVERLAY / name)
    driver.wait_rolled_out(devices=pool)


def start(space: Space, name: str) -> Object:
    """A pod of the manifest that its users have today, under another name."""
    about = yaml.safe_load(MANIFEST)
    about["metadata"]["name"] = name
    space.apply(about)
    return space.wait_phase(name)


def is_by_dra(about: Object) -> bool:
    """Whether the scheduler has made a claim for the pod."""
    return "extendedResourceClaimStatus" in about["status"]


def given(space: Space, name: str) -> list[str]:
    """What a container has besides its chip: device nodes, mounts, and the Ascend variables."""
    looks = (
        "stat -c '%F %a %n' /dev/* | grep -v 'davinci[0-9]'",
        "cut -d' ' -f5,6 /proc/self/mountinfo",
        "printenv | grep -E '^(ASCEND|LD)_'",
    )
    return [
        line
        for look in looks
        for line in sorted(space.execute(name, "sh", "-c", look).splitlines())
    ]


def test_one_manifest_in_every_stage(driver: Driver, plugin: Plugin, space: Space) -> None:
    """A device plugin answers it, then DRA, then a device plugin again; no pod loses its NPU."""
    patch(driver, "all-npus.yaml", pool=0)
    plugin.wait_allocatable(NPUS)
    first = start(space, "first")
    assert not is_by_dra(first)
    assert_as_documented(driver, with_resources=True)

    # Some NPUs by DRA. The class is not asked where a device plugin has any of the resource.
    patch(driver, "some-npus.yaml", pool=NPUS - SOME)
    plugin.wait_allocatable(SOME)
    driver.cluster.apply(CLASS)
    space.apply(claim("npu"), pod("by-claim", "npu"), user("too-many", SOME))
    space.wait_phase("by-claim")
    assert number(*space.allocated("npu")) >= SOME
    by_claim = given(space, "by-claim")
    (metadata,) = [line for line in by_claim if "/dra-device-attributes/" in line]
    by_claim.remove(metadata)
    assert by_claim == given(space, "first")
    space.wait_event("too-many", "FailedScheduling", f"Insufficient {RESOURCE}")
    space.delete_pod("too-many")

    # All NPUs by DRA, beside a pod that got its own by the device plugin. The node goes on to show
    # the resource, with 0, and the class is asked nevertheless.
    driver.set_environment(f"{FLAG}-", devices=NPUS - 1)
    plugin.wait_allocatable(0)
    node = driver.cluster.get("node", driver.node.name) or {}
    assert node["status"]["allocatable"][RESOURCE] == "0"
    assert is_by_dra(start(space, "second"))
    space.assert_runs_on(first)
    nodes = {name: space.davinci_nodes(name) for name in ("first", "second")}
    assert nodes["first"] != nodes["second"]
    for name, before in nodes.items():
        space.kill(name)
        assert space.davinci_nodes(name) == before
    space.delete_pod("first")
    driver.wait_published()

    # And back, beside the pods that have their NPUs by DRA.
    patch(driver, "all-npus.yaml", pool=2)
    plugin.wait_allocatable(NPUS - 2)
    assert not is_by_dra(start(space, "third"))
    space.kill("second")
    assert space.davinci_nodes("second") == nodes["second"]


def test_overlay_is_accepted(driver: Driver) -> None:
    """The API server takes it as it is."""
    driver.cluster.kubectl("apply", "--dry-run=server", "--kustomize", OVERLAY)
