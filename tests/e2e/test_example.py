"""The example of docs/guides/driver.md on the real kubelet, beside the driver of NPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import CDI, NAME, NAMESPACE, PLUGIN, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.space import Space, claim, device_class, pod, request

pytestmark = pytest.mark.cluster

EXAMPLE = "lamp.example.com"
LAMPS = Path("/var/lib/lamps")
FOLDERS = (LAMPS, CDI, PLUGIN.parent, PLUGIN.parent.with_name("plugins_registry"))
RIGHTS = (
    ("", "nodes", ("get",)),
    ("resource.k8s.io", "resourceclaims", ("get",)),
    ("resource.k8s.io", "resourceslices", ("list", "watch", "create", "update", "delete")),
)


def manifests(driver: Driver, namespace: str) -> list[Object]:
    """A DaemonSet with the image of our driver, the rights that the guide names, and a class."""
    ours = driver.cluster.get("daemonset", NAME, namespace=NAMESPACE)
    assert ours is not None
    account = {"kind": "ServiceAccount", "name": "lamps", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": EXAMPLE}
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "name": "driver",
        "image": ours["spec"]["template"]["spec"]["containers"][0]["image"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-m", "trio_npu_dra.lab.example"],
        "env": [{"name": "NODE_NAME", "valueFrom": field}],
        "volumeMounts": [
            {"name": folder.name.replace("_", "-"), "mountPath": str(folder)} for folder in FOLDERS
        ],
    }
    volumes = [
        {"name": folder.name.replace("_", "-"), "hostPath": {"path": str(folder)}}
        for folder in FOLDERS
    ]
    template = {
        "metadata": {"labels": {"app": "lamps"}},
        "spec": {"serviceAccountName": "lamps", "containers": [container], "volumes": volumes},
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "lamps"}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": EXAMPLE},
            "rules": [
                {"apiGroups": [group], "resources": [kind], "verbs": list(verbs)}
                for group, kind, verbs in RIGHTS
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": EXAMPLE},
            "roleRef": role,
            "subjects": [account],
        },
        device_class(EXAMPLE, f'device.driver == "{EXAMPLE}"'),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "lamps"},
            "spec": {"selector": {"matchLabels": {"app": "lamps"}}, "template": template},
        },
    ]


def lamps(driver: Driver) -> dict[str, list[str]]:
    """The taints of each lamp that is published."""
    return {
        device["name"]: [taint["key"] for taint in device.get("taints", [])]
        for item in driver.cluster.objects("resourceslices", namespace=None)
        if item["spec"]["driver"] == EXAMPLE
        for device in item["spec"].get("devices", [])
    }


def shown(space: Space, name: str) -> list[tuple[str, str]]:
    """Health and message of each lamp in a pod's status."""
    states = (space.get("pod", name) or {})["status"]["containerStatuses"]
    return [
        (one["health"], one.get("message", ""))
        for state in states
        for status in state.get("allocatedResourcesStatus", [])
        for one in status.get("resources", [])
        if one["resourceID"].startswith(EXAMPLE)
    ]


@pytest.fixture
def desk(driver: Driver) -> Iterator[Path]:
    """The one lamp of the node, whose driver has published it; afterwards nothing of it is left."""
    cluster, home = driver.cluster, Space.create(driver.cluster, "e2e-lamps")
    cluster.node.execute("mkdir", "-p", LAMPS)
    file = cluster.node.root / LAMPS.relative_to("/") / "desk.lamp"
    file.touch()
    try:
        home.apply(*manifests(driver, home.name))
        cluster.wait(lambda: lamps(driver) == {"desk": []}, "the lamp published")
        yield file
    except ClusterError:
        for each in cluster.objects("pods", namespace=home.name):
            print(home.log(each["metadata"]["name"], "driver"))
        raise
    finally:
        home.delete("daemonset", "lamps", foreground=True)
        home.remove()
        for kind in ("deviceclass", "clusterrolebinding", "clusterrole"):
            cluster.remove(kind, EXAMPLE)
        for item in cluster.objects("resourceslices", namespace=None):
            if item["spec"]["driver"] == EXAMPLE:
                cluster.remove("resourceslice", item["metadata"]["name"])
        cluster.node.execute("rm", "-rf", PLUGIN.with_name(EXAMPLE), LAMPS)


def test_pod_with_an_npu_and_a_lamp(driver: Driver, space: Space, desk: Path) -> None:
    """It sees both; a broken lamp shows in its status and in the slice, until it is mended."""
    light = request("light")
    light["exactly"]["deviceClassName"] = EXAMPLE
    space.apply(claim("npu"), claim("lamp", light), pod("user", "npu", "lamp"))
    space.wait_phase("user")
    assert len(space.seen_npus("user")) == 1
    desk.write_text("the bulb is broken\n")
    assert space.execute("user", "sh", "-c", "cat $LAMP_DESK") == "the bulb is broken\n"

    broken = ("Unhealthy", "the bulb is broken")
    space.wait(lambda: shown(space, "user") == [broken], "the lamp unhealthy in the pod's status")
    taint = f"{EXAMPLE}/trouble"
    space.wait(lambda: lamps(driver) == {"desk": [taint]}, "the lamp tainted")
    desk.write_text("")
    space.wait(lambda: lamps(driver) == {"desk": []}, "the lamp without a taint")
    space.wait(lambda: shown(space, "user") == [("Healthy", "")], "the lamp healthy again")

    space.delete_pod("user")
    assert driver.cluster.node.execute("find", CDI, "-name", f"{EXAMPLE}-lamp_*") == ""
