"""The conformance scenarios of the stand-in hold for a real kube-apiserver too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.api.conformance import (
    AS_ADMINISTRATOR,
    AS_DRIVER,
)
from tests.api.feature_scenarios import AS_DRIVER_WITH_FEATURES
from tests.api.scenario import Scenario, driver_rules
from tests.api.watch_scenarios import assert_gone
from tests.cluster.conftest import Server
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.base.errors import Unavailable

pytestmark = pytest.mark.cluster

NAME = "conformance"
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": NAME},
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": NAME},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
    "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": "default"}],
}
ACCOUNT = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME}}
WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


class Widget(KubeObject):
    """A kind that the API server learns late, so that its history starts late."""

    group_version = "example.com/v1"
    kind_name = "Widget"
    plural = "widgets"


@pytest.fixture(scope="module")
def driver(
    server: Server, administrator: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A kubeconfig with the token of a service account that has the manifests' ClusterRole."""
    objects = [ROLE | {"rules": driver_rules()}, BINDING, ACCOUNT]
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    server.kubectl("apply", "--filename", "-", stdin=manifest)
    token = server.kubectl("create", "token", NAME, "--duration", "1h")
    config: dict[str, Any] = json.loads(administrator.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = tmp_path_factory.mktemp("driver") / "kubeconfig"
    path.write_text(json.dumps(config))
    yield path
    found = json.loads(server.kubectl("get", "resourceslices", "--output", "json"))
    made = [
        one["metadata"]["name"]
        for one in found["items"]
        if one["spec"]["driver"].endswith(".example.com")
    ]
    if made:
        server.kubectl("delete", "resourceslices", *made)
    server.kubectl("delete", "--filename", "-", stdin=manifest)


async def play(scenario: Scenario, kubeconfig: Path) -> None:
    """Play a scenario with a client of its own."""
    with trio.fail_after(120):
        async with open_client(load_credentials(kubeconfig)) as client:
            await scenario(client)


@pytest.mark.parametrize("scenario", AS_DRIVER, ids=lambda scenario: scenario.__name__)
async def test_kube_apiserver_conforms_to_the_driver(scenario: Scenario, driver: Path) -> None:
    """Each scenario holds with just the rights of the manifests."""
    await play(scenario, driver)


@pytest.mark.since("1.36")
@pytest.mark.parametrize(
    "scenario", AS_DRIVER_WITH_FEATURES, ids=lambda scenario: scenario.__name__
)
async def test_kube_apiserver_conforms_in_newer_features(scenario: Scenario, driver: Path) -> None:
    """Each scenario holds where taints and counters are kept."""
    await play(scenario, driver)


@pytest.mark.parametrize("scenario", AS_ADMINISTRATOR, ids=lambda scenario: scenario.__name__)
async def test_kube_apiserver_conforms_to_an_administrator(
    scenario: Scenario, administrator: Path
) -> None:
    """Each scenario holds that needs rights which the driver does not have."""
    await play(scenario, administrator)


async def test_kube_apiserver_forgets_history(server: Server, administrator: Path) -> None:
    """A watch from before the API server's history is refused as such."""
    manifest = json.dumps(WIDGETS)
    server.kubectl("apply", "--filename", "-", stdin=manifest)
    try:
        server.kubectl("wait", "--for=condition=Established", "crd/widgets.example.com")
        await play(_widgets_are_gone, administrator)
    finally:
        server.kubectl("delete", "--filename", "-", stdin=manifest)


async def _widgets_are_gone(client: KubeClient) -> None:
    while True:
        try:
            await client.list(Widget)
        except Unavailable as unready:  # 429 while the storage is made ready
            await trio.sleep(unready.retry_after or 0.2)
        else:
            break
    await assert_gone(client, Widget)
