"""A second instance of the driver, under another name, on the same node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import CDI, DRIVER, NAME, NAMESPACE, NPUS, PLUGIN, Driver, cdi_file
from dev.cluster.processes import ClusterError
from tests.e2e.space import Space, claim, device_class, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

SECOND = "npu2.example.com"


def manifests(driver: Driver, namespace: str) -> list[Object]:
    """The driver's own DaemonSet with another name and account; and a class for it.

    The account is another one, because ours may only write the slices of our driver.
    """
    found = driver.cluster.get("daemonset", NAME, namespace=NAMESPACE)
    assert found is not None
    template = found["spec"]["template"]
    (plugin,) = template["spec"]["containers"]
    plugin["args"] += [f"--driver-name={SECOND}"]
    template["metadata"] = {"labels": {"app": "second"}}
    template["spec"]["serviceAccountName"] = template["spec"]["serviceAccount"] = "second"
    del template["spec"]["initContainers"]  # there is one board, and it is laid out
    account = {"kind": "ServiceAccount", "name": "second", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "second"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": SECOND},
            "roleRef": role,
            "subjects": [account],
        },
        device_class(SECOND, f'device.driver == "{SECOND}"'),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "second"},
            "spec": {"selector": {"matchLabels": {"app": "second"}}, "template": template},
        },
    ]


def published(driver: Driver) -> int:
    """How many devices the second driver has published."""
    slices = driver.cluster.objects("resourceslices", namespace=None)
    return sum(len(item["spec"]["devices"]) for item in slices if item["spec"]["driver"] == SECOND)


def connections(driver: Driver, name: str) -> int:
    """How many connections to the service socket of a driver there are."""
    table = driver.cluster.node.execute("cat", "/proc/net/unix")
    rows = [line.split() for line in table.splitlines()]
    folder = str(PLUGIN.with_name(name)) + "/dra"
    return sum(len(row) == 8 and row[7].startswith(folder) and row[5] == "03" for row in rows)


@pytest.fixture
def second(driver: Driver) -> Iterator[None]:
    """The second driver runs, is registered and has published; afterwards nothing of it is left."""
    cluster, home = driver.cluster, Space.create(driver.cluster, "e2e-second")

    def registered() -> bool:
        pods = cluster.objects("pods", namespace=home.name)
        try:
            return any("registered with the kubelet" in driver.said(pod) for pod in pods)
        except ClusterError:  # not started yet
            return False

    try:
        home.apply(*manifests(driver, home.name))
        cluster.wait(registered, "the second driver registered")
        cluster.wait(lambda: published(driver) == NPUS, "the second driver's devices")
        yield
    finally:
        home.delete("daemonset", "second", foreground=True)
        home.remove()
        for kind in ("deviceclass", "clusterrolebinding"):
            cluster.remove(kind, SECOND)
        programs = f"{CDI}/{SECOND}-libraries-*"  # stays with a driver, for the pods of that
        driver.node.execute("sh", "-c", f"rm -f {programs}")
        for item in cluster.objects("resourceslices", namespace=None):
            if item["spec"]["driver"] == SECOND:
                cluster.remove("resourceslice", item["metadata"]["name"])
        cluster.node.execute("rm", "-rf", PLUGIN.with_name(SECOND))


@pytest.mark.usefixtures("second")
def test_pod_with_claims_of_two_drivers(driver: Driver, space: Space) -> None:
    """Each driver prepares its claim under its own CDI kind; the kubelet has one line to each."""
    ours = request(cel=f'device.attributes["{DRIVER}"].physicalId == 1')
    theirs = request(cel=f'device.attributes["{SECOND}"].physicalId == 6')
    theirs["exactly"]["deviceClassName"] = SECOND
    space.apply(claim("ours", ours), claim("theirs", theirs), pod("user", "ours", "theirs"))
    space.wait_phase("user")
    assert space.seen_npus("user") == sorted(map(driver.bus, ("npu-1", "npu-6")))

    uids = {name: space.uid("resourceclaim", name) for name in ("ours", "theirs")}
    assert driver.traces() == [cdi_file(uids["ours"]).name, f"{uids['ours']}.json"]
    assert kind(driver, f"{DRIVER}-npu_{uids['ours']}.json") == f"{DRIVER}/npu"
    assert kind(driver, f"{SECOND}-npu_{uids['theirs']}.json") == f"{SECOND}/npu"
    assert [connections(driver, name) for name in (DRIVER, SECOND)] == [1, 1]

    space.delete_pod("user")
    driver.wait_without_traces()
    left = driver.cluster.node.execute("find", CDI, "-name", f"{SECOND}-npu_*")
    assert left == ""


def kind(driver: Driver, file: str) -> str:
    """The CDI kind in a file of the node."""
    return str(json.loads(driver.cluster.node.execute("cat", CDI / file))["kind"])
