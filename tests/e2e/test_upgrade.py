"""The driver of an earlier version is updated to this one, and back, while pods hold NPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dev.cluster import deploy
from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from dev.cluster.past import Past
from tests.e2e.space import Space, claim, container, pod, request

pytestmark = pytest.mark.cluster

PAST = Past(commit="3cf874e")
"""The first build with the records of today, a day after 0.1.0."""
OBSERVER = request()
OBSERVER["exactly"] |= {"allocationMode": "All", "adminAccess": True}
CHANGES = 3
"""How often the version changes; each time another container of a pod is killed, for the kubelet
waits before it restarts a container for the second time."""


def thief_of(name: str) -> str:
    """How the name of each thief ends that wants the NPUs of that pod."""
    return f"-of-{name}"


@dataclass(frozen=True, kw_only=True)
class Holders:
    """Pods with NPUs, whichever version of the driver has prepared them."""

    driver: Driver
    space: Space
    pods: list[str] = field(default_factory=list)

    def start(self, name: str, wanted: Object) -> None:
        """A pod runs that has what is wanted."""
        containers = [container(f"container-{number}", name) for number in range(CHANGES)]
        user = pod(name, name, containers=containers)
        user["spec"]["restartPolicy"] = "Always"
        self.space.apply(claim(name, wanted), user)
        self.space.wait_phase(name)
        self.pods.append(name)

    def end(self, name: str) -> None:
        """A pod ends, and its claim is given back, as are those of its thieves."""
        uid = self.space.uid("resourceclaim", name)
        self.space.delete_pod(name)
        self.pods.remove(name)
        self.driver.cluster.wait(
            lambda: not any(uid in trace for trace in self.driver.traces()), f"{name} unprepared"
        )
        claims = self.space.cluster.objects("resourceclaims", namespace=self.space.name)
        names = [each["metadata"]["name"] for each in claims]
        thieves = [each for each in names if each.endswith(thief_of(name))]
        self.space.delete("resourceclaims", name, *thieves)

    def held(self) -> dict[str, list[str]]:
        """The NPUs of each pod; one with admin access holds none."""
        return {name: self.space.allocated(name) for name in self.pods if name != "observer"}

    def containers(self) -> dict[str, list[str]]:
        """The containers' ids, by pod."""
        return {
            name: [
                state["containerID"]
                for state in self.space.wait_phase(name)["status"]["containerStatuses"]
            ]
            for name in self.pods
        }

    def kill(self, container: str) -> None:
        """A container of each pod is killed, and has the same NPUs when it has come back."""
        with ThreadPoolExecutor() as beside:
            list(beside.map(lambda name: self.space.kill(name, container), self.pods))
        for name in self.pods:
            nodes = [
                device.replace("npu-", "/dev/davinci") for device in self.space.allocated(name)
            ]
            assert self.space.davinci_nodes(name, container=container) == nodes


@dataclass(frozen=True, kw_only=True)
class Thief:
    """A pod whose claim was given a held NPU by mistake; it must never run.

    Its claim stays for as long as the NPU is held: when a claim goes, the scheduler takes all its
    NPUs for free.
    """

    holders: Holders
    name: str

    def begin(self, device: str) -> None:
        """Let it have the NPU, as far as the API server goes."""
        space = self.holders.space
        space.apply(claim(self.name), pod(self.name, self.name, is_gated=True))
        space.allocate(self.name, self.name, npu=device)
        space.ungate(self.name)

    def end(self) -> None:
        """It is refused by the driver that runs now, and was never let in; then it goes."""
        space, driver = self.holders.space, self.holders.driver
        uid, instance = space.uid("resourceclaim", self.name), driver.wait_ready()

        def refused() -> bool:
            lines = driver.said(instance).splitlines()
            return any('"claim not prepared"' in line and uid in line for line in lines)

        space.try_again(self.name)
        space.wait(refused, f"{self.name} refused")
        assert (space.get("pod", self.name) or {})["status"]["phase"] == "Pending"
        assert not any(uid in trace for trace in driver.traces())
        space.delete_pod(self.name)


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The two versions of the driver; one of them is deployed."""

    driver: Driver
    folder: Path
    notes: list[str]

    def past(self) -> None:
        """Have the earlier one."""
        self._change("past", lambda: PAST.apply(self.driver.cluster, self.folder))

    def present(self) -> None:
        """Have that of this tree."""
        self._change("present", lambda: deploy.apply(self.driver.cluster))

    def _change(self, name: str, apply: Callable[[], None]) -> None:
        began = time.monotonic()
        apply()
        self.driver.wait_rolled_out()
        self.notes.append(f"{time.monotonic() - began:6.1f} s  until the driver is the {name} one")


@pytest.fixture
def versions(driver: Driver, tmp_path: Path, notes: list[str]) -> Iterator[Versions]:
    """The earlier version runs, on a node without claims; afterwards that of this tree does."""
    began = time.monotonic()
    PAST.provide(driver.cluster)
    notes.append(f"{time.monotonic() - began:6.1f} s  for the image of {PAST.commit}")
    versions = Versions(driver=driver, folder=tmp_path, notes=notes)
    driver.remove()
    versions.past()
    yield versions
    versions.present()


def change(holders: Holders, number: int, to: Callable[[], None]) -> None:
    """The version changes under pods that hold NPUs: nothing is lost, and no NPU given twice."""
    space, claims, before = holders.space, holders.held(), holders.containers()
    held = {device for devices in claims.values() for device in devices}
    thieves = [Thief(holders=holders, name=f"thief-{number}{thief_of(name)}") for name in claims]
    for thief, devices in zip(thieves, claims.values(), strict=True):
        thief.begin(devices[0])
    with ThreadPoolExecutor(1) as beside:
        rollout = beside.submit(to)
        come_and_go(space, f"during-{number}", held, until=rollout.done)
        rollout.result()
    assert holders.containers() == before

    rest = f"rest-{number}"
    space.apply(claim(rest, request(count=NPUS - len(held))), pod(rest, rest))
    with ThreadPoolExecutor() as beside:  # the driver waits for the holders before it refuses
        refusals = [beside.submit(thief.end) for thief in thieves]
        holders.kill(f"container-{number}")
        space.wait_phase(rest)
        for refusal in refusals:
            refusal.result()
    assert held.isdisjoint(space.allocated(rest))
    space.delete_pod(rest)


def come_and_go(space: Space, name: str, held: set[str], *, until: Callable[[], bool]) -> None:
    """One pod after the other gets an NPU that is free."""
    space.apply(claim(name))
    while not until():
        space.apply(pod(name, name))
        space.wait_phase(name)
        assert held.isdisjoint(space.allocated(name))
        space.delete_pod(name)


def test_nothing_is_lost_from_version_to_version(
    driver: Driver, versions: Versions, space: Space
) -> None:
    """Forward, back and forward again: each version keeps, and gives back, what both prepared."""
    holders = Holders(driver=driver, space=space)
    space.let_look_on()
    holders.start("observer", OBSERVER)
    holders.start("past-one", request())
    holders.start("past-two", request(count=2))

    change(holders, 0, versions.present)
    holders.end("past-one")
    holders.start("present-one", request())
    holders.start("present-two", request(count=2))

    change(holders, 1, versions.past)
    holders.end("past-two")
    holders.end("present-two")
    holders.start("past-again", request(count=2))

    change(holders, 2, versions.present)
    for name in tuple(holders.pods):
        holders.end(name)
    driver.wait_without_traces()
