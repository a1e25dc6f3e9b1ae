"""An unhealthy NPU, from the hardware's word to the scheduler, the pods and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.faults import KEEPS_PODS, MOVES_PODS, Faults, number
from tests.e2e.space import Space, claim, pod, request
from tests.e2e.test_health import wait_health

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

BUS = "resource.kubernetes.io/pciBusID"
EXAMPLE = Path(__file__).parent.parent.parent / "k8s/examples/tolerates-fault.yaml"
NOT_SUPPORTED = -8255
SUBSCRIBE = "dcmi_subscribe_fault_event"
WORK = "work"


@pytest.fixture(params=["events", "polling"])
def way(request: pytest.FixtureRequest, driver: Driver) -> Iterator[str]:
    """How the driver comes to know of faults: it is told, or it has to ask."""
    if request.param == "events":
        yield request.param
        return
    with driver.board() as board:
        board.set_return_code(SUBSCRIBE, NOT_SUPPORTED)
        try:
            driver.restart()
            yield request.param
        finally:
            board.release(SUBSCRIBE)
            driver.restart()


def start_holder(space: Space) -> str:
    """Pod `user` runs and its NPU is Healthy; returns the device."""
    space.apply(claim("npu"), pod("user", "npu"))
    space.wait_phase("user")
    wait_health(space, "Healthy")
    (device,) = space.allocated("npu")
    return device


def wait_event(space: Space, reason: str, *words: str) -> None:
    """Wait for an Event about the claim of pod `user`."""

    def look() -> bool:
        events = space.cluster.objects("events", namespace=space.name)
        return any(
            event["involvedObject"].get("kind") == "ResourceClaim"
            and event["reason"] == reason
            and all(word in event["message"] for word in words)
            for event in events
        )

    space.wait(look, f"an Event {reason} of the claim with {words}")


def test_fault_is_seen_everywhere_while_it_lasts(
    way: str, driver: Driver, faults: Faults, space: Space
) -> None:
    """Slice, pod status, Event, metric and `npu-dra health` have it, and recovery clears it all.

    Whether the Ascend driver tells of faults or has to be asked. The pod that holds the NPU runs on
    if the fault allows it.
    """
    device = start_holder(space)
    before = driver.devices()
    assert faults.report().watch == way
    assert faults.metric("npu_dra_fault_events_subscribed") == float(way == "events")

    faults.begin(device, KEEPS_PODS)
    faults.wait_withheld(device, "RestartBusiness")
    wait_health(space, "Unhealthy")
    wait_event(space, "NpuFault", device, f"{KEEPS_PODS:08X}", "RestartBusiness")
    npu = faults.npu(device)
    assert [fault.code for fault in npu.faults] == [f"{KEEPS_PODS:08X}"]
    assert npu.held_by == (f"{space.name}/npu",)
    assert faults.level(device) == "RestartBusiness"
    assert space.seen_npus("user") == [before[device]["attributes"][BUS]["string"]]

    faults.end(device, KEEPS_PODS)
    driver.cluster.wait(lambda: driver.devices() == before, "the pool as it was")
    wait_health(space, "Healthy")
    wait_event(space, "NpuRecovered", device)
    assert faults.level(device) == "NormalNPU"
    code = f"{KEEPS_PODS:08X}"
    name = "npu_dra_npu_fault_start_timestamp_seconds"
    assert faults.metric(name, device=device, code=code) is None


def test_unhealthy_npu_can_be_given_back_and_is_given_out_when_well(
    driver: Driver, faults: Faults, space: Space
) -> None:
    """Who holds it can end; who asks for just this one waits until it is well, and gets it then."""
    device = start_holder(space)
    faults.begin(device, KEEPS_PODS)
    faults.wait_withheld(device, "RestartBusiness")

    space.delete_pod("user")
    driver.wait_without_traces()
    same = f'device.attributes["npu.huawei.com"].physicalId == {number(device)}'
    space.apply(claim("same", request(cel=same)), pod("waits", "same"))
    space.wait_event("waits", "FailedScheduling")

    faults.end(device, KEEPS_PODS)
    space.wait_phase("waits")
    assert space.allocated("same") == [device]


def work() -> list[Object]:
    """A Deployment of one pod with an NPU."""
    spec = {"spec": claim(WORK)["spec"]}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": WORK},
        "spec": spec,
    }
    its_pod = pod(WORK, WORK)["spec"] | {
        "restartPolicy": "Always",
        "resourceClaims": [{"name": WORK, "resourceClaimTemplateName": WORK}],
    }
    labels = {"app": WORK}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": WORK},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": its_pod},
        },
    }
    return [template, deployment]


def wait_work(space: Space, *, instead_of: str = "") -> tuple[str, str]:
    """Wait until the Deployment's pod runs, if asked another one; returns it and its device."""

    def look() -> tuple[str, str] | None:
        for found in space.cluster.objects("pods", namespace=space.name, selector=f"app={WORK}"):
            name, status = found["metadata"]["name"], found["status"]
            ready = [each["ready"] for each in status.get("containerStatuses", [])]
            if name != instead_of and ready == [True]:
                (made,) = status["resourceClaimStatuses"]
                (device,) = space.allocated(made["resourceClaimName"])
                return name, device
        return None

    return space.wait(look, f"a pod of {WORK}, not {instead_of!r}")


@pytest.mark.since("1.36")
def test_work_moves_away_from_an_npu_that_must_be_restarted(
    faults: Faults, space: Space, notes: list[str]
) -> None:
    """Its pod is evicted, a replacement runs on another NPU; the taint goes with the fault."""
    space.apply(*work())
    first, device = wait_work(space)

    began = time.monotonic()
    faults.begin(device, MOVES_PODS)
    second, other = wait_work(space, instead_of=first)
    took = time.monotonic() - began
    faults.wait_taint(device, "RestartNPU", "NoExecute")
    space.wait_gone(first)
    assert other != device
    events = space.cluster.pod_events(first, namespace=space.name)
    (eviction,) = [event for event in events if "Eviction" in event]
    notes.append(f"eviction: {took:.1f} s from the fault to the replacement ready; {eviction}")

    faults.end(device, MOVES_PODS)
    space.wait(lambda: faults.taints(device) == [], f"no taint on {device}")
    assert wait_work(space) == (second, other)
    space.delete("deployment", WORK)


def container_id(pod: Object) -> str:
    """Which container the pod's only one is; another one after a restart."""
    (status,) = pod["status"]["containerStatuses"]
    return str(status["containerID"])


@pytest.mark.since("1.36")
def test_claim_of_the_example_keeps_and_gets_unhealthy_npus(faults: Faults, space: Space) -> None:
    """With every NPU about to be restarted, pods that tolerate it stay and start, others do not."""
    example = EXAMPLE.read_text()
    space.apply_text(example)
    space.apply(claim("plain"), pod("stays", "tolerates-fault"), pod("leaves", "plain"))
    stays = space.wait_phase("stays")
    space.wait_phase("leaves")
    devices = [f"npu-{physical_id}" for physical_id in range(NPUS)]

    for device in devices:
        faults.begin(device, MOVES_PODS)
    space.wait_gone("leaves")
    space.apply(claim("later"), pod("later", "later"))
    space.wait_event("later", "FailedScheduling")
    space.apply_text(example.replace("name: tolerates-fault", "name: another"))
    space.apply(pod("starts", "another"))
    space.wait_phase("starts")
    for device in devices:
        faults.wait_taint(device, "RestartNPU", "NoExecute")
    still = space.wait_phase("stays")
    assert container_id(still) == container_id(stays)

    for device in devices:
        faults.end(device, MOVES_PODS)
    space.wait_phase("later")
    assert all(faults.taints(device) == [] for device in devices)
