"""The Helm chart on a real cluster, while pods hold NPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dev.cluster import deploy
from dev.cluster.api import Object
from dev.cluster.driver import CDI, DRIVER, NAME, NAMESPACE, PLUGIN, Driver
from dev.site.chart_values import CHART
from tests.e2e.space import Space
from tests.helm.chart import objects, template, with_image

pytestmark = pytest.mark.cluster

RELEASE = "npus"
BOARD: Object = {"simulator": {"enabled": True}}
VALUES: dict[str, Object] = {
    "defaults": {},
    "all flags": {
        "flags": {
            "partitioning": "dynamic",
            "shares-per-npu": 4,
            "taint-effect": {"SeparateNPU": "NoSchedule"},
            "device-plugin": ["0-3"],
            "log-level": "debug",
        }
    },
    "classes": {
        "deviceClasses": {
            "extendedResourceName": "huawei.com/npu",
            "families": {"Ascend910B": {"extendedResourceName": "huawei.com/npu-910b"}},
        }
    },
    "another node": {
        "kubelet": {"directory": "/var/lib/k0s/kubelet"},
        "cdi": {"directory": "/var/run/cdi"},
        "image": {"repository": "example.com/npu", "digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"example.com/npu": "yes"},
        "tolerations": [{"key": "example.com/npu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "example.com/npu", "operator": "Exists"}]}
                    ]
                }
            }
        },
        "resources": {"limits": {"memory": "512Mi"}},
        "priorityClassName": "system-cluster-critical",
    },
    "board and dashboard": BOARD | {"monitoring": {"dashboard": True}},
    "open": {
        "networkPolicy": {"namespaces": []},
        "admissionPolicies": {"ownNode": False, "configs": False},
    },
}


@dataclass
class Chart:
    """The driver as a release of Helm, in the place of what kustomize applied."""

    driver: Driver
    is_installed: bool = False

    def helm(self, *words: str, values: Object | None = None) -> str:
        """Run Helm on the release's namespace, with the simulated board and those values."""
        given = json.dumps(with_image(BOARD | (values or {})))
        return self.driver.cluster.helm("--namespace", NAMESPACE, *words, stdin=given)

    def install(self, *words: str) -> None:
        """Install it, and wait until the driver is at work."""
        self.helm("install", RELEASE, str(CHART), "--values=-", *words)
        self.is_installed = True
        self.driver.wait_rolled_out()

    def ensure(self) -> None:
        """Take over from kustomize, unless that was done.

        kubectl still owns fields of the objects afterwards, which Helm would not change otherwise.
        """
        if not self.is_installed:
            self.install("--take-ownership", "--server-side=false")

    def upgrade(self, values: Object) -> None:
        """Change its values, and wait until the driver is at work with them."""
        self.helm("upgrade", RELEASE, str(CHART), "--values=-", values=values)
        self.driver.wait_rolled_out()

    def rollback(self) -> None:
        """Return to the revision before."""
        self.helm("rollback", RELEASE)
        self.driver.wait_rolled_out()

    def uninstall(self) -> None:
        """Remove it, and wait until the driver's pods are gone."""
        self.helm("uninstall", RELEASE, "--wait", "--cascade=foreground")
        self.is_installed = False
        self.driver.cluster.wait(lambda: self.driver.pid() is None, "the driver gone")

    def arguments(self) -> list[str]:
        """The arguments with which the driver was started."""
        (container,) = self.driver.wait_ready()["spec"]["containers"]
        return list(container["args"])


@pytest.fixture(scope="module")
def chart(driver: Driver) -> Iterator[Chart]:
    """The chart is not installed at first; at the end kustomize's manifests are applied again."""
    chart = Chart(driver)
    yield chart
    if chart.is_installed:
        chart.uninstall()
    deploy.apply(driver.cluster)
    driver.wait_rolled_out()


@pytest.fixture
def holder(space: Space) -> Object:
    """A pod that runs with an NPU before the release changes."""
    return space.start("holder")


@pytest.mark.every_version
def test_pods_run_on_through_a_releases_life(chart: Chart, space: Space, holder: Object) -> None:
    """It takes over from kustomize, is upgraded, rolled back, uninstalled and installed again."""
    driver = chart.driver
    before = driver.wait_ready()["metadata"]["uid"]
    chart.ensure()
    assert driver.wait_ready()["metadata"]["uid"] == before, "nothing changed for the driver"

    def is_alone() -> bool:
        slices = driver.cluster.objects("resourceslices", namespace=None)
        return {each["spec"]["nodeName"] for each in slices} == {driver.node.name}

    driver.cluster.wait(is_alone, "no slice of a node that another test has left")
    said = chart.helm("test", RELEASE, "--logs")
    assert "npu-" in said, said

    chart.upgrade({"flags": {"log-level": "debug"}})
    assert "--log-level=debug" in chart.arguments()
    chart.rollback()
    assert "--log-level=debug" not in chart.arguments()
    space.assert_runs_on(holder, npus=1)

    chart.uninstall()
    driver.cluster.wait_gone("daemonset", NAME, namespace=NAMESPACE)
    assert len(driver.records()) == len(driver.cdi_files()) == 1
    space.assert_runs_on(holder, npus=1)

    chart.install()
    space.assert_runs_on(holder, npus=1)
    space.start("later")
    assert space.allocated("later") != space.allocated("holder")
    space.delete_pod("holder")


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_api_server_takes_what_is_rendered(driver: Driver, values: Object) -> None:
    """A server-side dry run finds no unknown field, and warns of nothing."""
    text = template(values)
    said = driver.cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--dry-run=server"),
        *("--warnings-as-errors", "--filename=-"),
        stdin=text,
    )
    assert said.count("serverside-applied") == len(objects(text))


def test_nothing_is_left_but_what_is_documented(chart: Chart) -> None:
    """No object of the chart, no slice, nothing of claims; docs/helm.md has what stays."""
    chart.ensure()
    cluster = chart.driver.cluster
    chart.uninstall()
    found = cluster.kubectl(
        *("get", "--filename=-", "--ignore-not-found", "--output=name"), stdin=template(BOARD)
    )
    assert found == "", "objects of the chart"
    assert chart.helm("list", "--output=json").strip() == "[]"
    cluster.wait(lambda: chart.driver.slices() == [], "the kubelet has removed the slices")

    root = cluster.node.root
    plugin = root / PLUGIN.relative_to("/")
    left = {path.name for path in plugin.rglob("*") if not path.is_dir()}
    assert {name for name in left if not name.endswith(".lock")} <= {"faults.json"}
    programs = [path.name for path in (root / CDI.relative_to("/")).iterdir()]
    assert all(name.startswith("npu.huawei.com-libraries-") for name in programs), programs
    for folder in ("plugins_registry", "device-plugins"):
        sockets = (root / "var/lib/kubelet" / folder).glob(f"{DRIVER}*")
        assert [*sockets] == []
