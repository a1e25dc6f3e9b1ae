"""The daemon's answers to `npu-dra health`, over a unix socket to which only root may connect.

`GET /health` is a `HealthReport` as JSON; `POST /release?device=npu-3` returns an NPU to service
that a frequency rule separated. Refusals are a line of text for people.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

import trio

from trio_npu_dra.agent.control.report import (
    HealthReport,
    report_hung,
    report_npus,
    report_partitioning,
    report_resources,
    report_unserved,
    watch_mode,
)
from trio_npu_dra.agent.device_plugin.device import DevicesByResource
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.holds.hold import Hold
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.model import Board
from trio_npu_dra.ascend.offers import PartitionMode
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.http import Handler, HttpRequest, HttpResponse, routed, serve_http
from trio_npu_dra.kit.kubelet.endpoints import Endpoints

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Answers from what the daemon knows."""

    life: Observable[Life]
    board: Observable[Board]
    watch: Observable[WatchStatus]
    features: Observable[ServerFeatures | None]
    worker: DcmiWorker  # has the hung calls
    faults: NodeFaults
    holds: Observable[tuple[Hold, ...]]
    partitioning: Observable[PartitionMode]
    resources: Observable[DevicesByResource]  # the devices of each device plugin resource
    waiting: Observable[Mapping[str, str]]  # why chips are not yet where they belong, by name

    def pages(self) -> Handler:
        """The handler of all requests."""
        return routed({("GET", "/health"): self.health, ("POST", "/release"): self.release})

    async def health(self, _: HttpRequest) -> HttpResponse:
        """The NPUs' health."""
        board, features = self.board.value, self.features.value
        report = HealthReport(
            waits=self.life.value in {Life.WAITS, Life.TAKES_OVER},
            watch=watch_mode(self.watch.value),
            refusal=self.watch.value.refusal,
            taints=features.taints if features is not None else None,
            gaps=board.gaps,
            hung_calls=tuple(report_hung(call, board) for call in self.worker.hung),
            npus=report_npus(board, self.holds.value, self.partitioning.value),
            partitioning=report_partitioning(
                board, self.holds.value, self.partitioning.value, features
            ),
            resources=report_resources(self.resources.value, self.holds.value),
            unserved=report_unserved(self.resources.value, self.holds.value),
            waiting=dict(self.waiting.value),
        )
        return HttpResponse(
            body=report.model_dump_json(by_alias=True), content_type="application/json"
        )

    async def release(self, request: HttpRequest) -> HttpResponse:
        """Return an NPU to service that a frequency rule separated."""
        device = "".join(parse_qs(request.query).get("device", [])[:1])
        chip = self.board.value.by_name.get(device)
        if chip is None:
            there = ", ".join(self.board.value.by_name) or "none"
            return HttpResponse(
                status=404, body=f"no NPU {device!r} on this node; there are: {there}"
            )
        if not self.faults.release(chip):
            return HttpResponse(
                status=409,
                body=f"{device} is not separated by a frequency rule: there is nothing to release",
            )
        log.warning("NPU released by hand", extra={"device": device})
        return HttpResponse(body=f"{device} is released, and its faults are counted from zero")


async def serve_control(
    control: Control,
    endpoints: Endpoints,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on the control socket until cancelled; started when clients can connect.

    Raises:
        ConfigError: The path cannot be a socket's, or its folder does not exist.
        StorageError: The file system refuses.
    """
    await serve_http(control.pages(), socket=endpoints.control, task_status=task_status)
