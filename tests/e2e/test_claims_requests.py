"""Which container gets what of claims with several requests."""

from __future__ import annotations

import pytest

from tests.cluster.api import Object
from tests.e2e.deploy import ROOT
from tests.e2e.driver import Driver
from tests.e2e.space import CLASS, Space, claim, container, pod, request

pytestmark = pytest.mark.cluster

MONITOR = (ROOT / "k8s/examples/admin-access.yaml").read_text()
OWN = 'device.attributes["npu.huawei.com"]'
ALL = [f"/dev/davinci{number}" for number in range(8)]


def assert_sees(driver: Driver, space: Space, container: str, *devices: str) -> None:
    """A container of the pod `user` has those NPUs and no others: nodes, and npu-smi's answer."""
    nodes = [device.replace("npu-", "/dev/davinci") for device in devices]
    assert space.davinci_nodes("user", container=container) == sorted(nodes)
    buses = [driver.bus(device) for device in devices]
    assert space.seen_npus("user", container=container) == sorted(buses)


@pytest.mark.every_version
def test_eight_requests_of_three_claims(driver: Driver, space: Space) -> None:
    """Each of eight containers names one request of one claim, and gets the NPU of just that."""
    wanted = {"one": ("a", "b", "c"), "two": ("a", "b", "c"), "three": ("a", "b")}
    claims = [claim(name, *map(request, requests)) for name, requests in wanted.items()]
    uses = [f"{name}/{each}" for name, requests in wanted.items() for each in requests]
    containers = [container(use.replace("/", "-"), use) for use in uses]
    space.apply(*claims, pod("user", *wanted, containers=containers))
    space.wait_phase("user")

    held = []
    for name in wanted:
        for each, (device,) in space.devices(name).items():
            held.append(device)
            assert_sees(driver, space, f"{name}-{each}", device)
    assert len(set(held)) == 8


def test_subrequest_that_fits(driver: Driver, space: Space) -> None:
    """Of a list of choices the first that fits is taken; containers know it by the list's name."""

    def choice(name: str, cel: str) -> Object:
        selectors = [{"cel": {"expression": cel}}]
        return {"name": name, "deviceClassName": CLASS, "selectors": selectors}

    choices = [
        choice("big", f'{OWN}.chipName == "910B1"'),
        choice("fits", f"{OWN}.physicalId == 2"),
    ]
    containers = [container("left", "npu/either"), container("right", "npu/other")]
    wanted = claim(
        "npu",
        {"name": "either", "firstAvailable": choices},
        request("other", cel=f"{OWN}.physicalId == 5"),
    )
    space.apply(wanted, pod("user", "npu", containers=containers))
    space.wait_phase("user")
    assert space.devices("npu") == {"either/fits": ["npu-2"], "other": ["npu-5"]}
    assert_sees(driver, space, "left", "npu-2")
    assert_sees(driver, space, "right", "npu-5")


def test_claim_that_no_container_names(driver: Driver, space: Space) -> None:
    """It is prepared and held all the same, and the pod runs without an NPU."""
    space.apply(claim("npu"), pod("user", "npu", containers=[container("main")]))
    space.wait_phase("user")
    assert len(driver.traces()) == 2
    assert space.execute("user", "sh", "-c", "ls /dev | grep -c davinci || true") == "0\n"


def test_admin_access(driver: Driver, space: Space) -> None:
    """Our example's monitor sees all NPUs, also a held one; later pods still get theirs."""
    space.apply(claim("before"), pod("before", "before"))
    space.let_look_on()
    space.apply_text(MONITOR)

    def monitor() -> str | None:
        pods = driver.cluster.objects("pods", namespace=space.name, selector="app=npu-monitor")
        here = [pod for pod in pods if pod["spec"].get("nodeName") == driver.cluster.node.name]
        return here[0]["metadata"]["name"] if here else None

    watcher = space.wait(monitor, "the monitor's pod")
    for name in ("before", watcher):
        space.wait_phase(name)
    assert space.davinci_nodes(watcher) == ALL
    assert len(space.seen_npus(watcher)) == 8

    space.apply(claim("after", request(count=7)), pod("after", "after"))
    space.wait_phase("after")
    assert not set(space.allocated("after")) & set(space.allocated("before"))
    assert len(space.seen_npus("after")) == 7
    space.delete("daemonset", "npu-monitor")


def test_device_of_two_admin_requests(driver: Driver, space: Space) -> None:
    """A claim that has an NPU by two requests: each of their containers sees it, once.

    The scheduler gives no device twice to a claim, so somebody else has to.
    """
    space.let_look_on()
    every = {"deviceClassName": CLASS, "allocationMode": "All", "adminAccess": True}
    requests = [{"name": name, "exactly": every} for name in ("a", "b")]
    containers = [container("left", "npu/a"), container("right", "npu/b"), container("x", "npu")]
    user = pod("user", "npu", containers=containers, is_gated=True)
    space.apply(claim("npu", *requests), user)
    space.allocate("npu", "user", a="npu-3", b="npu-3")
    space.ungate("user")
    space.wait_phase("user")
    for each in ("left", "right", "x"):
        assert_sees(driver, space, each, "npu-3")
