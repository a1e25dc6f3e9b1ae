"""The owner of a pod reads the text of the reply, which becomes an event of the pod."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.claims.node import (
    AT_ONCE,
    DRIVER,
    POOL,
    NodeOnDisk,
    board,
    claim,
    config,
    ref,
    result,
)
from trio_npu_dra.agent.claims import planner
from trio_npu_dra.ascend.model import EMPTY_BOARD
from trio_npu_dra.kit.api.objects import AllocationConfiguration, ResourceClaim, ResourceClaimStatus
from trio_npu_dra.kit.base.errors import Forbidden, KubeError, Unavailable
from trio_npu_dra.kit.kubelet.driver import PreparedDevice

EVENT_LIMIT = 1024
"""Characters of an event; the kubelet writes some 150 of its own before our text."""


def opaque(parameters: object, *requests: str, driver: str = DRIVER) -> AllocationConfiguration:
    """A config in the claim."""
    return config("FromClaim", parameters, *requests, driver=driver)


def allocated_to(name: str, *devices: str) -> ResourceClaim:
    """A claim with one request a device."""
    return claim(name, *(result(each, f"r{n}") for n, each in enumerate(devices)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A claim `a` that cannot be prepared, and the text."""

    text: str
    stored: ResourceClaim | None = field(default_factory=lambda: claim("a", result("npu-2")))
    fault: KubeError | None = None
    change: Callable[[NodeOnDisk], object] | None = None


GOOD = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}
CASES = {
    "the claim is gone": Case(stored=None, text="the claim does not exist any more"),
    "another claim has its name": Case(
        stored=claim("a", result("npu-2"), uid="uid-new"),
        text="the claim was replaced: the pod uses UID uid-a, and default/a now has UID uid-new",
    ),
    "it is not allocated": Case(
        stored=claim("a").model_copy(update={"status": ResourceClaimStatus()}),
        text="the claim is not allocated",
    ),
    "nothing is ours": Case(
        stored=claim("a", result("gpu-0", driver="gpu.example.com")),
        text="the claim's allocation has no device of driver npu.huawei.com",
    ),
    "the device has vanished": Case(
        stored=claim("a", result("npu-9")),
        text="device npu-9 does not exist on node node-1 any more (it has npu-0, npu-1, npu-2, "
        "npu-3, npu-4, npu-5, npu-6, npu-7): delete the pod to get another one",
    ),
    "it is of another node": Case(
        stored=claim("a", result("npu-2", pool="node-2")),
        text="device npu-2 is allocated from pool node-2, and this node serves only pool node-1",
    ),
    "there are too many results": Case(
        stored=allocated_to("a", *["npu-2"] * 33),
        text="the claim's allocation has 33 results, Kubernetes allows 32",
    ),
    "another claim holds the device": Case(
        stored=claim("a", result("npu-7")),
        text="device npu-7 is held by claim default/other (UID uid-other) until its pods have "
        "ended",
    ),
    "a config of another kind": Case(
        stored=claim("a", result("npu-2"), config=[opaque(GOOD | {"kind": "GpuConfig"})]),
        text='opaque config in the ResourceClaim: kind is "GpuConfig": write '
        "apiVersion npu.huawei.com/v1alpha1 and kind NpuConfig",
    ),
    "a config of another version": Case(
        stored=claim("a", result("npu-2"), config=[opaque(GOOD | {"apiVersion": "v1"})]),
        text='opaque config in the ResourceClaim: apiVersion is "v1": write '
        "apiVersion npu.huawei.com/v1alpha1 and kind NpuConfig",
    ),
    "a config with an unknown field": Case(
        stored=claim("a", result("npu-2"), config=[opaque(GOOD | {"cores": 4})]),
        text="opaque config in the ResourceClaim: cores is not known to this driver: remove it "
        "(known: apiVersion, kind, sharing, containerLibraries, driverMounts, ubFiles, "
        "visibleDevices, env)",
    ),
    "a config of more than 10 KiB": Case(
        stored=claim("a", result("npu-2"), config=[opaque(GOOD | {"kind": "x" * 11_000})]),
        text=f'opaque config in the ResourceClaim: kind is "{"x" * 60}...": write '
        "apiVersion npu.huawei.com/v1alpha1 and kind NpuConfig",
    ),
    "we may not read claims": Case(
        fault=Forbidden("get resourceclaims default/a: 403 no rights", status=403),
        text="get resourceclaims default/a: 403 no rights",
    ),
    "the API server is away": Case(
        fault=Unavailable("get resourceclaims default/a: no connection"),
        text="get resourceclaims default/a: no connection",
    ),
    "chips boot": Case(
        change=lambda node: node.board.set(EMPTY_BOARD),
        text="no NPU of node node-1 is known yet: npu-2 must wait",
    ),
    "the Ascend driver is not loaded": Case(
        change=lambda node: (node.root / "dev/davinci_manager").unlink(),
        text="/dev/davinci_manager is missing on the node, or is not a character device: is the "
        "Ascend driver loaded?",
    ),
    "the Ascend driver is being replaced": Case(
        change=lambda node: (node.root / "host/usr/local/Ascend/driver/lib64").rmdir(),
        text="/usr/local/Ascend/driver/lib64/ is missing on the node, or is not a folder: is the "
        "Ascend driver loaded?",
    ),
    "the chip has no device node": Case(
        change=lambda node: (node.root / "dev/davinci2").unlink(),
        text="/dev/davinci2 is missing on the node, or is not a character device: is the Ascend "
        "driver loaded?",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_refusal_names_the_problem(
    node: NodeOnDisk, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that fits into an event; where only the claim is wrong, another is prepared."""
    monkeypatch.setattr(planner, "FILES_SECONDS", 0.0)
    node.source.store(claim("other", result("npu-7")), claim("good", result("npu-0")))
    claims = node.start(patience=AT_ONCE)
    await claims.prepare([ref("other"), ref("good")])
    if case.stored is not None:
        node.source.store(case.stored)
    if case.fault is not None:
        node.source.faults.append(case.fault)
    if case.change is not None:
        case.change(node)

    is_alone = case.fault is not None or case.change is not None
    answers = dict(await claims.prepare([ref("a")] if is_alone else [ref("a"), ref("good")]))

    assert answers.pop("uid-a").error == case.text
    assert [answer.error for answer in answers.values()] == ([] if is_alone else [""])
    assert len(case.text) < EVENT_LIMIT - 150
    assert "uid-a" not in node.cdi_uids()


# --- which container gets what -------------------------------------------------------------------


async def given(node: NodeOnDisk, *names: str) -> dict[str, list[PreparedDevice]]:
    """Prepare claims in one call; the devices of each."""
    answers = await node.start().prepare([ref(name) for name in names])
    assert {uid: answer.error for uid, answer in answers.items() if answer.error} == {}
    return {name: list(answers[f"uid-{name}"].devices) for name in names}


def device(uid: str, name: str, *requests: str) -> PreparedDevice:
    """One device of an answer."""
    return PreparedDevice(
        requests=requests,
        pool=POOL,
        device=name,
        cdi_device_ids=(f"{DRIVER}/npu={uid}-{name}",),
    )


async def test_three_claims_with_three_requests_each_reach_the_right_containers(
    node: NodeOnDisk,
) -> None:
    """The kubelet maps containers to devices by the names of requests."""
    node.board.set(board(9))
    (node.root / "dev/davinci8").symlink_to("/dev/null")
    for number, name in enumerate("abc"):
        node.source.store(
            claim(
                name,
                *(result(f"npu-{3 * number + k}", request) for k, request in enumerate("xyz")),
                config=[opaque(GOOD), opaque(GOOD, "y"), opaque({}, driver="gpu.example.com")],
            )
        )

    assert await given(node, "a", "b", "c") == {
        name: [
            device(f"uid-{name}", f"npu-{3 * number + k}", request)
            for k, request in enumerate("xyz")
        ]
        for number, name in enumerate("abc")
    }


async def test_two_admins_and_a_user_share_an_npu(node: NodeOnDisk) -> None:
    """In one call; each claim has a CDI device of its own."""
    node.source.store(
        claim("user", result("npu-0")),
        *(claim(name, result("npu-0", admin_access=True)) for name in ("top", "smi")),
    )

    assert await given(node, "top", "user", "smi") == {
        name: [device(f"uid-{name}", "npu-0", "npu")] for name in ("top", "user", "smi")
    }
