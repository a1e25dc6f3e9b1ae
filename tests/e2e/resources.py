"""The driver as a device plugin, and pods that ask for its resource as they did for Huawei's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dev.cluster.api import Object
from dev.cluster.driver import NPUS, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.space import ENDS_AT_ONCE, Space, container, pod

RESOURCE = "huawei.com/Ascend910"
FLAG = "NPU_DRA_DEVICE_PLUGIN"


@dataclass
class Plugin:
    """The driver's device plugin, which most of these tests need; the first one turns it on.

    Attributes:
        driver: The driver.
        selector: The NPUs that are for the resource; empty while it is off.
    """

    driver: Driver
    selector: str = ""

    def turn_on(self, selector: str = "all", *, pool: int = 0) -> None:
        """These NPUs are for the resource; so many are in the pool."""
        if self.selector != selector:
            self.selector = selector
            self.driver.set_environment(f"{FLAG}={selector}", devices=pool)

    def turn_off(self, *, pool: int = NPUS) -> None:
        """All NPUs are for the pool; the pool has so many of them."""
        if self.selector:
            self.driver.set_environment(f"{FLAG}-", devices=pool)
            self.selector = ""

    def amount(self, which: str = "allocatable", *, of: str = RESOURCE) -> int:
        """How many the node has of a resource (`capacity`), or may be given to pods."""
        node = self.driver.cluster.get("node", self.driver.node.name) or {}
        return int(node["status"][which].get(of, "0"))

    def wait_allocatable(self, count: int, *, of: str = RESOURCE) -> None:
        """Wait until the scheduler may give so many to pods."""
        self.driver.cluster.wait(
            lambda: self.amount(of=of) == count, f"{count} of {of} allocatable"
        )

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


def user(name: str, count: int, *, command: Sequence[str] = ENDS_AT_ONCE) -> Object:
    """A pod as its users have it today."""
    about = pod(name, containers=[asking("main", count, command=command)])
    about["spec"]["restartPolicy"] = "Always"
    return about


def asking(name: str, count: int, *, command: Sequence[str] = ENDS_AT_ONCE) -> Object:
    """A container that asks for so many NPUs."""
    amount = {RESOURCE: str(count)}
    made = container(name, command=command)
    made["resources"] = {"limits": amount, "requests": amount}
    return made


def start(space: Space, **counts: int) -> dict[str, Object]:
    """Pods that run with so many NPUs each."""
    space.apply(*(user(name, count) for name, count in counts.items()))
    return {name: space.wait_phase(name) for name in counts}


def assert_run_on(space: Space, before: dict[str, Object]) -> None:
    """The pods run, and their containers are those that they had."""
    for about in before.values():
        space.assert_runs_on(about)
