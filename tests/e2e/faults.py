"""Faults of the node's NPUs, and the driver's reports of them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from dev.cluster.api import Object
from dev.cluster.driver import DRIVER, NPUS, Driver
from tests.e2e.space import Space
from trio_npu_dra.agent.control.report import HealthReport, NpuReport
from trio_npu_dra.agent.observe.pages import SCRAPE_SECONDS
from trio_npu_dra.lab.simulator import BoardControl, Severity

KEEPS_PODS = 0x81B38002
"""RestartBusiness: no new pods. No frequency rule separates the NPU for it."""
MOVES_PODS = 0x80CF8000
"""RestartNPU: no pods at all. No frequency rule separates the NPU for it."""


def number(device: str) -> int:
    """The physical id of a device, by its name."""
    return int(device.removeprefix("npu-"))


def wait_health(space: Space, health: str) -> str:
    """Wait until the status of pod `user` says so of its NPU; returns the message beside it."""

    def look() -> tuple[str] | None:
        (container,) = (space.get("pod", "user") or {})["status"]["containerStatuses"]
        for claimed in container.get("allocatedResourcesStatus", []):
            for resource in claimed["resources"]:
                if resource["health"] == health:
                    return (resource.get("message", ""),)
        return None

    return space.wait(look, f"an NPU {health}")[0]


def start_holder(space: Space) -> str:
    """Pod `user` runs and its NPU is Healthy; returns the device."""
    space.start("user")
    wait_health(space, "Healthy")
    (device,) = space.allocated("user")
    return device


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The simulated board under the driver, and the effects of its faults."""

    driver: Driver
    board: BoardControl

    # --- the board -------------------------------------------------------------------------------

    def begin(self, device: str, code: int) -> None:
        """Let an NPU report a fault."""
        self.board.add_fault(number(device), code, Severity.CRITICAL)

    def end(self, device: str, code: int) -> None:
        """Let an NPU report that a fault is over."""
        self.board.clear_fault(number(device), code)

    def look(self, device: str) -> None:
        """Make the driver read an NPU now, by a notice without content."""
        self.board.emit_event(number(device), KEEPS_PODS, Severity.WARNING)

    def end_all(self) -> None:
        """Let every NPU be well, whatever was wrong."""
        for physical_id in range(NPUS):
            self.board.restore(physical_id)
            self.look(f"npu-{physical_id}")

    # --- what the driver says --------------------------------------------------------------------

    def taints(self, device: str) -> list[Object]:
        """The taints of a published device, without their times."""
        taints = self.driver.devices()[device].get("taints", [])
        return [{key: taint[key] for key in taint if key != "timeAdded"} for taint in taints]

    def wait_taint(self, device: str, level: str, effect: str) -> None:
        """Wait until a device has that taint, and no other."""
        taint = {"key": f"{DRIVER}/fault", "value": level, "effect": effect}
        self.driver.cluster.wait(lambda: self.taints(device) == [taint], f"{taint} on {device}")

    def wait_withheld(self, device: str, level: str) -> None:
        """Wait until no new pod can get a device: it is tainted, or not published."""
        if self.report().taints:
            self.wait_taint(device, level, "NoSchedule")
        else:
            self.driver.cluster.wait(
                lambda: device not in self.driver.devices(), f"{device} not published"
            )

    def health(self, *words: str) -> str:
        """What `npu-dra health` prints in the driver's pod."""
        return self.driver.execute("npu-dra", "health", *words)

    def report(self) -> HealthReport:
        """Its report for programs."""
        return HealthReport.model_validate_json(self.health("--output=json"))

    def npu(self, device: str) -> NpuReport:
        """The report's part about one NPU."""
        return next(npu for npu in self.report().npus if npu.device == device)

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a metric of the driver, by some of its labels; None without such a one."""
        time.sleep(SCRAPE_SECONDS)  # for so long it shows what was true before
        for family in text_string_to_metric_families(self.driver.page("/metrics")):
            for sample in family.samples:
                if sample.name == name and sample.labels.items() >= labels.items():
                    return sample.value
        return None

    def level(self, device: str) -> str:
        """The level of an NPU as the metrics have it."""
        level = self.npu(device).level
        assert self.metric("npu_dra_npu_fault_level", device=device, level=level) == 1
        return level
