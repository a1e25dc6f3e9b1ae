"""What the status of claims says of their NPUs, and who may say it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from dev.cluster.api import APPLY, MERGE, ApiServer, Object
from dev.cluster.deploy import ROOT
from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import ClusterError
from tests.e2e import nics
from tests.e2e.faults import KEEPS_PODS, Faults, number
from tests.e2e.space import Space, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

RIGHT = "ascend-npu-dra-claim-status"
"""The ClusterRole and its binding."""
FORBIDDEN = "forbidden-"
"""Begins the names of claims whose status the driver may not write."""
WRITES = "npu_dra_claim_status_writes_total"
ELSEWHERE = "other-node"


def said(space: Space, name: str, driver: str = DRIVER) -> dict[str, Object]:
    """What a driver says of the devices of a claim."""
    found = space.get("resourceclaim", name) or {}
    devices = found.get("status", {}).get("devices", [])
    return {each["device"]: each for each in devices if each["driver"] == driver}


def wait_said(space: Space, name: str, ready: str = "True") -> dict[str, Object]:
    """Wait until all devices of a claim that is allocated have a status that says so."""

    def look() -> dict[str, Object] | None:
        found = said(space, name)
        states = {each["conditions"][0]["status"] for each in found.values()}
        is_whole = found.keys() == {one for one in space.allocated(name) if one.startswith("npu")}
        return found if is_whole and states == {ready} else None

    return space.wait(look, f"claim {name} with devices that are ready: {ready}")


def test_claims_of_a_pod_say_what_their_npus_are(
    driver: Driver, space: Space, faults: Faults
) -> None:
    """One write a prepare, one a change, none by a restart, and none when it ends."""
    mark = driver.cluster.audit_mark()
    space.apply(claim("two", request(count=2)), claim("one"), pod("user", "two", "one"))
    before = space.wait_phase("user")
    for name, count in (("two", 2), ("one", 1)):
        found = wait_said(space, name)
        assert len(found) == count
        for device, each in found.items():
            assert each["pool"] == driver.cluster.node.name
            assert each["data"]["apiVersion"] == "npu.huawei.com/v1alpha1"
            assert each["data"]["kind"] == "NpuStatus"
            assert each["data"]["physicalId"] == number(device)
            assert each["data"]["model"] == "Ascend910B"
    assert sorted(driver.status_writes(mark)) == ["one", "two"]

    (ill,) = said(space, "one")
    faults.begin(ill, KEEPS_PODS)
    faulty = wait_said(space, "one", "False")[ill]["conditions"][0]
    assert f"{KEEPS_PODS:08X}" in faulty["message"]
    faults.end(ill, KEEPS_PODS)
    wait_said(space, "one")
    driver.kill()
    driver.wait_published()
    space.assert_runs_on(before, npus=3)
    assert sorted(driver.status_writes(mark)) == ["one"] * 3 + ["two"]

    space.delete_pod("user")
    driver.wait_without_traces()
    space.wait(lambda: not said(space, "one"), "a claim without devices")
    assert len(driver.status_writes(mark)) == 4


@contextmanager
def without_the_right(driver: Driver) -> Iterator[None]:
    """The driver may not write the status of claims meanwhile."""
    cluster = driver.cluster
    cluster.remove("clusterrolebinding", RIGHT)
    try:
        yield
    finally:
        cluster.kubectl("apply", "--filename", str(ROOT / "k8s/base/claim-status.yaml"))


def test_without_the_right_pods_start_as_fast(
    driver: Driver, space: Space, notes: list[str]
) -> None:
    """Log, doctor and a metric report it once; a start with the right makes up for it."""

    def started(name: str) -> str:
        space.start(name)
        line = next(
            line
            for line in driver.log().splitlines()
            if '"claim prepared"' in line and space.uid("resourceclaim", name) in line
        )
        return f"{json.loads(line[line.index('{') :])['ms']:g} ms"

    names = [f"{FORBIDDEN}{letter}" for letter in "ab"]
    allowed = [started("a"), started("b")]
    with without_the_right(driver):
        mark = driver.cluster.audit_mark()
        forbidden = [started(name) for name in names]
        space.wait(lambda: sorted(driver.status_writes(mark)) == names, "two refusals")
        assert not said(space, names[0])
        assert f'{WRITES}{{result="Forbidden"}} 2' in driver.page("/metrics")
        assert driver.log().count("the API server forbids the status of claims") == 1
        asked = driver.execute("npu-dra", "doctor")
        claims = " and ".join(f"{space.name}/{name}" for name in names)
        assert f"does not say what their NPUs are: {claims}" in asked
    notes.append(f"prepared with the right in {allowed}, without in {forbidden}")
    driver.kill()
    for name in names:
        wait_said(space, name)


# --- who may say what ----------------------------------------------------------------------------


Change = Callable[[Object], Object]
"""The fields to change in a claim's status, by what that is."""


def with_said(driver: str, text: str = "other") -> Change:
    """Give that driver's devices a status."""

    def change(status: Object) -> Object:
        others = [one for one in status.get("devices", []) if one["driver"] != driver]
        results = status["allocation"]["devices"]["results"]
        theirs = [
            {key: one[key] for key in ("driver", "pool", "device")} | {"data": {"said": text}}
            for one in results
            if one["driver"] == driver
        ]
        return {"status": {"devices": [*others, *theirs]}}

    return change


def with_another_device(status: Object) -> Object:
    """The claim is allocated another device."""
    allocation = copy.deepcopy(status["allocation"])
    allocation["devices"]["results"][0]["device"] = "npu-7"
    return {"status": {"allocation": allocation}}


TRIES: Mapping[str, tuple[str, Change]] = {
    "say something of another driver's device": ("own", with_said(nics.NAME)),
    "allocate another device": ("own", with_another_device),
    "say something in another node's claim": ("elsewhere", with_said(DRIVER)),
}
"""What an agent that somebody has taken over tries: the claim, and the change."""
BY_POLICY = "may only write|may change neither"
BY_SERVER = 'requires resource="resourceclaims/(driver|binding)"|field (is immutable|cannot be mod)'


def change_status(server: ApiServer, space: Space, name: str, change: Change) -> Object:
    """Try to change the status of a claim; returns it as it would be."""
    status = (space.get("resourceclaim", name) or {})["status"]
    path = server.resource("resourceclaim").path(space.name, name, "status")
    query = {"dryRun": "All"}
    made: Object = json.loads(server.ask("PATCH", path, change(status), content=MERGE, query=query))
    return made


@pytest.fixture
def both(driver: Driver, space: Space) -> Iterator[Space]:
    """Claim `own` has an NPU and a NIC of another driver; both drivers have written a status."""
    root = {"nic-0": "pci0000:00"}
    nic = {"name": "nic", "exactly": {"deviceClassName": nics.NAME}}
    with nics.running(driver.cluster, driver.node, root):
        space.apply(claim("own", request(), nic), pod("user", "own"))
        space.wait_phase("user")
        wait_said(space, "own")
        say_of_nic(space, "first")
        yield space
        space.delete_pod("user")


def say_of_nic(space: Space, text: str) -> None:
    """The other driver says something of its device in claim `own`, as drivers do."""
    server = space.cluster.api
    path = server.resource("resourceclaim").path(space.name, "own", "status")
    device = {"driver": nics.NAME, "pool": space.cluster.node.name, "device": "nic-0"}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "own"},
        "status": {"devices": [device | {"data": {"said": text}}]},
    }
    query = {"fieldManager": nics.NAME, "force": "true"}
    server.ask("PATCH", path, body, content=APPLY, query=query)


def test_each_driver_keeps_what_the_other_says(both: Space, faults: Faults) -> None:
    """Neither write removes anything of the other driver's."""
    (npu,) = said(both, "own")
    assert said(both, "own", nics.NAME)["nic-0"]["data"] == {"said": "first"}
    faults.begin(npu, KEEPS_PODS)
    wait_said(both, "own", "False")
    say_of_nic(both, "second")
    faults.end(npu, KEEPS_PODS)
    wait_said(both, "own")
    assert said(both, "own", nics.NAME)["nic-0"]["data"] == {"said": "second"}


@pytest.fixture
def elsewhere(both: Space) -> Space:
    """Beside it, claim `elsewhere` has a device of this driver on another node."""
    both.apply(claim("elsewhere"), pod("waits", "elsewhere", is_gated=True))
    both.allocate("elsewhere", "waits", node=ELSEWHERE, npu="npu-0")
    status = (both.get("resourceclaim", "elsewhere") or {})["status"]
    both.patch("resourceclaim", "elsewhere", "status", change=with_said(DRIVER, "theirs")(status))
    return both


def test_agent_says_nothing_but_its_own(
    elsewhere: Space, agent: ApiServer, notes: list[str]
) -> None:
    """The API server refuses all else, and metadata stay as they are."""
    space = elsewhere
    assert change_status(agent, space, "own", with_said(DRIVER))["status"]["devices"]
    for words, (name, change) in TRIES.items():
        with pytest.raises(ClusterError, match=f"{BY_POLICY}|{BY_SERVER}") as refused:
            change_status(agent, space, name, change)
        who = "policy" if re.search(BY_POLICY, str(refused.value)) else "API server"
        notes.append(f"refused by the {who}: {words}")
    labelled = {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/a"]}}
    made = change_status(agent, space, "own", lambda _: labelled)["metadata"]
    assert "labels" not in made
    assert "example.com/a" not in made.get("finalizers", [])
    with pytest.raises(ClusterError, match='cannot patch resource "resourceclaims"'):
        agent.patch("resourceclaim", "own", change=labelled, namespace=space.name, dry_run=True)
