"""Claims with several requests, and the devices and configs that each container gets."""

from __future__ import annotations

import pytest

from dev.cluster.api import Object
from dev.cluster.driver import Driver
from dev.config.cases import GOOD, named
from tests.e2e.libraries import LIBRARIES, loads
from tests.e2e.space import CLASS, Space, claim, container, device_class, pod, request

pytestmark = pytest.mark.cluster

OWN = 'device.attributes["npu.huawei.com"]'
CLASS_WITH_CONFIG = "configured"
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


def test_admin_access(driver: Driver, space: Space) -> None:
    """Our example's monitor sees all NPUs, also a held one; later pods still get theirs."""
    space.start("before")
    space.let_look_on()
    space.apply_example("admin-access")

    def monitor() -> str | None:
        pods = driver.cluster.objects("pods", namespace=space.name, selector="app=npu-monitor")
        here = [pod for pod in pods if pod["spec"].get("nodeName") == driver.cluster.node.name]
        return here[0]["metadata"]["name"] if here else None

    watcher = space.wait(monitor, "the monitor's pod")
    space.wait_phase(watcher)
    assert space.davinci_nodes(watcher) == ALL
    assert len(space.seen_npus(watcher)) == 8

    space.start("after", request(count=7))
    assert not set(space.allocated("after")) & set(space.allocated("before"))
    assert len(space.seen_npus("after")) == 7
    space.delete("daemonset", "npu-monitor")


# --- what requests configure ---------------------------------------------------------------------


def config(*requests: str, **fields: object) -> Object:
    """A config of a claim for some requests, or of a class."""
    opaque = {"driver": CLASS, "parameters": GOOD | fields}
    return {"requests": list(requests), "opaque": opaque} if requests else {"opaque": opaque}


def seen(space: Space, name: str) -> tuple[str, str, bool, bool]:
    """What a container has: LD_LIBRARY_PATH, FOO, whether libdcmi.so is there, and is found."""
    library = f"{LIBRARIES}/libdcmi.so"
    trace = "LD_TRACE_LOADED_OBJECTS=1 LD_PRELOAD=libdcmi.so /usr/bin/true"
    look = f'echo "$LD_LIBRARY_PATH"; echo "$FOO"; ls {library}; {trace}; true'
    path, foo, *lines = space.execute("user", "sh", "-c", look, container=name).splitlines()
    return path, foo, library in lines, any(f"=> {library}" in line for line in lines)


@pytest.mark.every_version
def test_each_container_gets_what_its_request_configures(space: Space) -> None:
    """Each way for libraries, and no mounts; no container has the edits of another one's NPU."""
    requests = ("ldcache", "env", "none", "bare")
    wanted = claim("npu", *map(request, requests))
    wanted["spec"]["devices"]["config"] = [
        *(config(name, containerLibraries=name) for name in ("ldcache", "env", "none")),
        config("bare", driverMounts=False, containerLibraries="none"),
        config("none", "env", env=[named("FOO", "a=b c")]),
    ]
    containers = [container(name, f"npu/{name}") for name in requests]
    space.apply(wanted, pod("user", "npu", containers=containers))
    space.wait_phase("user")

    found = {name: seen(space, name) for name in requests}
    path, *rest = found.pop("env")
    assert path.startswith(f"{LIBRARIES}:")
    assert rest == ["a=b c", True, True]
    assert found == {
        "ldcache": ("", "", True, True),
        "none": ("", "a=b c", True, False),
        "bare": ("", "", False, False),
    }


def test_a_claims_config_wins_over_its_class(space: Space) -> None:
    """It wins for each variable and field; requests of another class have only the claim's config.

    It wins over the pod's own variables too.
    """
    of_class = config(env=[named("A", "class"), named("B", "class")], containerLibraries="none")
    ours = f'device.driver == "{CLASS}"'
    space.apply(device_class(CLASS_WITH_CONFIG, ours, config=[of_class]))
    both = claim("npu", request("configured"), request("plain"))
    first, _ = both["spec"]["devices"]["requests"]
    first["exactly"]["deviceClassName"] = CLASS_WITH_CONFIG
    both["spec"]["devices"]["config"] = [config(env=[named("A", "claim")])]
    containers = [container(name, f"npu/{name}") for name in ("configured", "plain")]
    for each in containers:
        each["env"] = [named("A", "pod")]
    space.apply(both, pod("user", "npu", containers=containers))
    space.wait_phase("user")

    words = "echo $A $B"
    assert space.execute("user", "sh", "-c", words, container="configured") == "claim class\n"
    assert space.execute("user", "sh", "-c", words, container="plain") == "claim\n"
    assert not loads(space, "libdcmi.so", container="configured")
    assert loads(space, "libdcmi.so", container="plain")
