"""What an API server adds: versions, whether DRA is served, and what others have published."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dev.rig.doctor_nodes import DRIVER, NODE, POD_UID, Node
from tests.holds.entries import POOL, entry
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.kit.api.objects import (
    Allocation,
    AllocationResult,
    Consumer,
    Device,
    DeviceAllocation,
    DeviceAttribute,
    DeviceStatus,
    FullNode,
    KubeObject,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.tools.doctor import api_server, dra_drivers
from trio_npu_dra.tools.doctor.api_server import ServerView
from trio_npu_dra.tools.doctor.finding import Level


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
    folder: Path, *objects: KubeObject, refuses_lists: int | None = None
) -> AsyncIterator[Path]:
    """An API server with a node and more, which may refuse a list; its kubeconfig."""
    api, socket, kubeconfig = ApiState(), folder / "api.sock", folder / "kubeconfig"
    if refuses_lists is not None:
        api.fail_next(status=refuses_lists, verb="list")
    info = {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.1.6"}
    node = {"metadata": {"name": NODE}, "status": {"nodeInfo": info}}
    api.add(FullNode.model_validate(node))
    for each in objects:
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


async def look(kubeconfig: Path, *entries: Entry, name: str | None = NODE) -> ServerView:
    """Ask about a node on which these have NPUs."""
    return await api_server.look(name, kubeconfig, entries=entries, driver_name=DRIVER)


USER = Consumer(resource="pods", name="train", uid="pod")


def claim(name: str, *users: Consumer, says: tuple[DeviceStatus, ...] = ()) -> ResourceClaim:
    """A claim that has NPU 0 of this node."""
    result = AllocationResult(request="npu", driver=DRIVER, pool=POOL, device="npu-0")
    allocation = Allocation(devices=DeviceAllocation(results=(result,)))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        status=ResourceClaimStatus(allocation=allocation, reserved_for=users, devices=says),
    )


async def as_stored(kubeconfig: Path, *entries: Entry) -> list[Entry]:
    """Entries with the UIDs that the API server has given to their claims."""
    found = []
    async with open_client(load_credentials(kubeconfig)) as client:
        for known in entries:
            stored = await client.get(ResourceClaim, known.holder.name, "default")
            holder = known.holder._replace(uid=stored.metadata.uid or "")
            found.append(replace(known, holder=holder))
    return found


async def test_unneeded_claims_are_reported(folder: Path) -> None:
    """Those that are deleted or not reserved; not those that are used, or undone already."""
    undone = replace(entry("undone"), state=EntryState.UNDOING)
    claims = [claim("used", USER), claim("unused")]
    async with served(folder, *claims) as kubeconfig:
        held = await as_stored(kubeconfig, entry("used"), entry("unused"))
        found = await look(kubeconfig, *held, entry("gone", 3), undone)

    *said, _ = api_server.judge(found, claim_status=False)
    assert [finding.level.value for finding in said] == ["warning", "warning"]
    assert [finding.text.partition(":")[0] for finding in said] == [
        "claim default/unused holds npu-0 on this node, and no pod needs it",
        "claim default/gone holds npu-3 on this node, and no pod needs it",
    ]


async def test_claims_whose_status_says_nothing_are_reported(folder: Path) -> None:
    """Unless nothing should say it; not of admin access, nor before they are prepared."""
    says = DeviceStatus(driver=DRIVER, pool=POOL, device="npu-0")
    claims = [
        claim("said", USER, says=(says,)),
        *(claim(name, USER) for name in ("a", "b", "admin", "begun")),
    ]
    entries = [
        *map(entry, ("said", "b", "a")),
        entry("admin", admin_access=True),
        replace(entry("begun"), state=EntryState.INTENDED),
    ]
    async with served(folder, *claims) as kubeconfig:
        found = await look(kubeconfig, *await as_stored(kubeconfig, *entries))

    said, _ = api_server.judge(found)
    assert said.level is Level.WARNING
    assert said.text.endswith("does not say what their NPUs are: default/a and default/b")
    assert len([*api_server.judge(found, claim_status=False)]) == 1


async def test_no_answer_is_a_problem_with_the_address(folder: Path) -> None:
    """As where a NetworkPolicy cuts the driver off."""
    async with served(folder) as kubeconfig:
        pass
    (finding,) = api_server.judge(await look(kubeconfig))
    assert finding.level is Level.PROBLEM
    assert "api.sock" in finding.text
    assert "NetworkPolicy" in finding.action


async def test_slices_of_other_drivers_are_reported(folder: Path, healthy: Node) -> None:
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
        found = await look(kubeconfig)
        assert (found.kubelet, found.runtime) == ("v1.36.3", "containerd://2.1.6")
        (said,) = api_server.judge(found)
        assert said.text == "serves DRA; this node has 5 ResourceSlices"

    findings = dra_drivers.check(healthy.places, (POD_UID,), found.slices or ())
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


async def test_what_cannot_be_asked_is_no_finding(folder: Path) -> None:
    """A node that is not there, a name that is not known, a kubeconfig that is not there."""
    async with served(folder) as kubeconfig:
        no_node = await look(kubeconfig, name="other")
    no_name = await look(kubeconfig, name=None)
    no_file = await look(folder / "none")

    for found in (no_node, no_name, no_file):
        (said,) = api_server.judge(found)
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
        found = await look(kubeconfig)

    assert found.kubelet == "v1.36.3"
    assert found.slices is None
    (said,) = api_server.judge(found)
    assert said.level.value == level
    assert said.text.startswith(text)
