"""A fault of an NPU, from the hardware's report to the scheduler and the pods, and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from tests.e2e.faults import (
    KEEPS_PODS,
    MOVES_PODS,
    Faults,
    start_holder,
    wait_health,
)
from tests.e2e.space import (
    EXAMPLES,
    Space,
    claim,
    claim_template,
    pod,
)

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

EXAMPLE = EXAMPLES / "tolerates-fault.yaml"
NOT_SUPPORTED = -8255
SUBSCRIBE = "dcmi_subscribe_fault_event"
WORK = "work"


@pytest.fixture(params=["events", "polling"])
def way(request: pytest.FixtureRequest, driver: Driver) -> Iterator[str]:
    """How the driver learns of faults: by events of the library, or by polling."""
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

    The pod that holds the NPU runs on if the fault allows it.
    """
    device = start_holder(space)
    before, bus = driver.devices(), driver.bus(device)
    assert faults.report().watch == way
    assert faults.metric("npu_dra_fault_events_subscribed") == float(way == "events")

    faults.begin(device, KEEPS_PODS)
    faults.wait_withheld(device, "RestartBusiness")
    wait_health(space, "Unhealthy")
    wait_event(space, "NpuFault", device, f"{KEEPS_PODS:08X}", "RestartBusiness")
    npu = faults.npu(device)
    assert [fault.code for fault in npu.faults] == [f"{KEEPS_PODS:08X}"]
    assert npu.held_by == (f"{space.name}/user",)
    assert faults.level(device) == "RestartBusiness"
    assert space.seen_npus("user") == [bus]

    faults.end(device, KEEPS_PODS)
    driver.cluster.wait(lambda: driver.devices() == before, "the pool as it was")
    wait_health(space, "Healthy")
    wait_event(space, "NpuRecovered", device)
    assert faults.level(device) == "NormalNPU"
    code = f"{KEEPS_PODS:08X}"
    name = "npu_dra_npu_fault_start_timestamp_seconds"
    assert faults.metric(name, device=device, code=code) is None


@pytest.mark.since("1.36")
def test_pods_status_names_the_fault(faults: Faults, space: Space) -> None:
    """The message beside the health has the fault's code, where Kubernetes has that field."""
    faults.begin(start_holder(space), KEEPS_PODS)
    assert f"{KEEPS_PODS:08X}" in wait_health(space, "Unhealthy")


def work() -> list[Object]:
    """A Deployment of one pod with an NPU."""
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
    return [claim_template(WORK, claim(WORK)), deployment]


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
    # Kubernetes may say afterwards that it need not delete what is gone.
    (eviction,) = [event for event in events if event.endswith("Eviction: Marking for deletion")]
    notes.append(f"eviction: {took:.1f} s from the fault to the replacement ready; {eviction}")

    faults.end(device, MOVES_PODS)
    space.wait(lambda: faults.taints(device) == [], f"no taint on {device}")
    assert wait_work(space) == (second, other)
    space.delete("deployment", WORK)


@pytest.mark.since("1.36")
def test_claim_of_the_example_keeps_and_gets_unhealthy_npus(faults: Faults, space: Space) -> None:
    """While every NPU must be restarted, tolerant pods stay and start; other pods do not."""
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
    space.assert_runs_on(stays)

    for device in devices:
        faults.end(device, MOVES_PODS)
    space.wait_phase("later")
    assert all(faults.taints(device) == [] for device in devices)
