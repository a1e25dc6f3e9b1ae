"""The driver as a device plugin: turning it on and off, and pods that ask for its resource."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cluster.api import Object
from tests.cluster.processes import ClusterError
from tests.e2e.driver import NPUS, Driver
from tests.e2e.space import Space, pod

RESOURCE = "huawei.com/Ascend910"
FLAG = "NPU_DRA_DEVICE_PLUGIN"


@dataclass
class Plugin:
    """The driver's device plugin, which most of these tests need; the first one turns it on."""

    driver: Driver
    is_on: bool = False

    def turn_on(self, *, pool: int = 0) -> None:
        """All NPUs are for the resource; so many claims still hold one."""
        if not self.is_on:
            self.is_on = True
            self.driver.set_environment(f"{FLAG}=all", devices=pool)

    def turn_off(self, *, pool: int = NPUS) -> None:
        """All NPUs are for the pool; the pool has so many of them."""
        if self.is_on:
            self.driver.set_environment(f"{FLAG}-", devices=pool)
            self.is_on = False

    def wait_allocatable(self, count: int) -> None:
        """Wait until the scheduler may give so many to pods."""

        def seen() -> bool:
            node = self.driver.cluster.get("node", self.driver.node.name) or {}
            return bool(node["status"]["allocatable"].get(RESOURCE, "0") == str(count))

        self.driver.cluster.wait(seen, f"{count} of {RESOURCE} allocatable")

    def registrations(self) -> int:
        """How often the kubelet has registered the resource of the daemon that runs now."""
        return self.driver.said(self.driver.wait_ready()).count("device plugin registered")

    def wait_registered(self, times: int) -> None:
        """Wait until the kubelet has registered it so often."""

        def registered() -> bool:
            try:
                return self.registrations() >= times
            except ClusterError:  # the kubelet is away, or the pod between two containers
                return False

        self.driver.cluster.wait(registered, f"the resource registered {times} times")


def user(name: str, count: int) -> Object:
    """A pod as its users have it today."""
    about = pod(name)
    amount = {RESOURCE: str(count)}
    about["spec"]["containers"][0]["resources"] = {"limits": amount, "requests": amount}
    about["spec"]["restartPolicy"] = "Always"
    return about


def start(space: Space, **counts: int) -> dict[str, Object]:
    """Pods that run with so many NPUs each."""
    space.apply(*(user(name, count) for name, count in counts.items()))
    return {name: space.wait_phase(name) for name in counts}


def assert_runs_on(space: Space, before: dict[str, Object]) -> None:
    """The containers are the same."""
    for name, about in before.items():
        states = (about, space.wait_phase(name))
        first, now = (each["status"]["containerStatuses"][0] for each in states)
        assert first["containerID"] == now["containerID"]
