"""What an API server adds: versions, whether DRA is served, and what others have published."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.doctor.nodes import DRIVER, NODE
from trio_npu_dra.doctor import cluster, dra_drivers
from trio_npu_dra.doctor.cluster import NodeWithStatus
from trio_npu_dra.doctor.dra_drivers import DraDrivers
from trio_npu_dra.kube.objects import (
    Device,
    DeviceAttribute,
    ObjectMeta,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.standins.api_server import serve_api
from trio_npu_dra.standins.api_state import ApiState


def published(name: str, driver: str, *devices: Device, node: str = NODE) -> ResourceSlice:
    """A slice of a driver."""
    return ResourceSlice(
        metadata=ObjectMeta(name=name),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=1),
            devices=devices,
        ),
    )


def device(name: str, attribute: str = "type") -> Device:
    """A device with an attribute."""
    return Device(name=name, attributes={attribute: DeviceAttribute(string="npu")})


@asynccontextmanager
async def served(
    folder: Path, *slices: ResourceSlice, refuses_lists: int | None = None
) -> AsyncIterator[Path]:
    """An API server with a node and slices, which may refuse a list; its kubeconfig."""
    api, socket, kubeconfig = ApiState(), folder / "api.sock", folder / "kubeconfig"
    if refuses_lists is not None:
        api.fail_next(status=refuses_lists, verb="list")
    info = {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.1.6"}
    node = {"metadata": {"name": NODE}, "status": {"nodeInfo": info}}
    api.add(NodeWithStatus.model_validate(node))
    for each in slices:
        api.add(each)
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"unix://{socket}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_api, api, socket)
            yield kubeconfig
            nursery.cancel_scope.cancel()


async def test_slices_of_others_are_told(folder: Path) -> None:
    """Those of another name, and those of Huawei's driver under ours; only of this node."""
    slices = (
        published("ours", DRIVER, device("npu-0")),
        published("huaweis", DRIVER, device("ascend910-0")),
        published("huaweis-950", DRIVER, device("npu-0", "physicId")),
        published("hamis", "ascend.project-hami.io", device("npu-0-0")),
        published("gpus", "gpu.example.com", device("gpu-0")),
        published("elsewhere", "npu.example.com", device("npu-0"), node="node-2"),
    )
    async with served(folder, *slices) as kubeconfig:
        found = await cluster.look(NODE, kubeconfig)
        assert (found.kubelet, found.runtime) == ("v1.36.3", "containerd://2.1.6")
        (said,) = cluster.judge(found)
        assert said.text == "serves DRA; this node has 5 ResourceSlices"

    findings = dra_drivers.judge(DraDrivers(), found.slices, driver_name=DRIVER)
    assert [(finding.level.value, finding.text.partition(" of ")[0]) for finding in findings] == [
        ("problem", "ResourceSlice huaweis"),
        ("problem", "ResourceSlice huaweis-950"),
        (
            "problem",
            (
                "the driver ascend.project-hami.io serves NPUs here too (ResourceSlice hamis): "
                "both would give the same NPU to two claims"
            ),
        ),
    ]


async def test_nobody_who_answers_is_no_finding(folder: Path) -> None:
    """A node that is not there, a server that is not there, a name that is not known."""
    async with served(folder) as kubeconfig:
        no_node = await cluster.look("other", kubeconfig)
    away = await cluster.look(NODE, kubeconfig)
    no_name = await cluster.look(None, kubeconfig)
    no_file = await cluster.look(NODE, folder / "none")

    for found in (no_node, away, no_name, no_file):
        (said,) = cluster.judge(found)
        assert said.level.value == "not checked"
        assert found.unasked in said.text
        assert found.unasked


@pytest.mark.parametrize(
    ("status", "level", "text"),
    [
        (404, "problem", "it does not serve resource.k8s.io/v1 (kubelet v1.36.3)"),
        (403, "not checked", "not asked for versions and the ResourceSlices of others: "),
    ],
)
async def test_slices_that_cannot_be_listed(
    folder: Path, status: int, level: str, text: str
) -> None:
    """They are not served, or not for us; the versions are known all the same."""
    async with served(folder, refuses_lists=status) as kubeconfig:
        found = await cluster.look(NODE, kubeconfig)

    assert found.kubelet == "v1.36.3"
    assert found.slices is None
    (said,) = cluster.judge(found)
    assert said.level.value == level
    assert said.text.startswith(text)
