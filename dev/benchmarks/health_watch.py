"""When the API server and a watcher learn that an NPU is unhealthy or well."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from dev.benchmarks.api import REQUEST_SECONDS, Api

DRIVER = "npu.huawei.com"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class TaintWatch:
    """A watch of our ResourceSlices of one node, as the scheduler has it.

    Args:
        api: The API server to watch.
        node: The node's name; its devices must have no taints yet.
    """

    def __init__(self, api: Api, node: str) -> None:
        selector = f"fieldSelector=spec.nodeName={node},spec.driver={DRIVER}"
        version = api.ask("GET", f"{_SLICES}?{selector}")["metadata"]["resourceVersion"]
        self._states: dict[str, tuple[bool, float]] = {}
        self._news = threading.Condition()
        self._connection = api.connect()
        self._connection.request(
            "GET", f"{_SLICES}?watch=true&resourceVersion={version}&{selector}"
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self, device: str, *, is_unhealthy: bool) -> float:
        """Wait until the watch shows a device unhealthy, or well.

        Returns:
            When the watch said so, on the clock of `time.time`.

        Raises:
            RuntimeError: Not in half a minute.
        """
        with self._news:
            if not self._news.wait_for(
                lambda: self._states.get(device, (False, 0.0))[0] is is_unhealthy, REQUEST_SECONDS
            ):
                raise RuntimeError(f"nothing new of {device} in {REQUEST_SECONDS:g} s")
            return self._states[device][1]

    def close(self) -> None:
        """Close the watch."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _follow(self) -> None:
        with suppress(OSError, http.client.HTTPException):  # closed
            for line in self._connection.getresponse():
                self._take(time.time(), json.loads(line)["object"]["spec"].get("devices", []))

    def _take(self, now: float, devices: list[dict[str, Any]]) -> None:
        states = {device["name"]: bool(device.get("taints")) for device in devices}
        with self._news:
            for name, is_unhealthy in states.items():
                if self._states.get(name, (False, 0.0))[0] is not is_unhealthy:
                    self._states[name] = (is_unhealthy, now)
            self._news.notify_all()


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """An update of a ResourceSlice, as the API server's audit log has it.

    Attributes:
        received_at: When the request arrived, in seconds since 1970.
        accepted_at: When it was answered with success.
    """

    received_at: float
    accepted_at: float


def slice_updates(audit_log: Path, user: str) -> list[Write]:
    """All updates of ResourceSlices by *user* that were accepted."""
    events = map(json.loads, audit_log.read_bytes().splitlines())
    return [
        Write(
            received_at=_seconds(event["requestReceivedTimestamp"]),
            accepted_at=_seconds(event["stageTimestamp"]),
        )
        for event in events
        if event["verb"] == "update"
        and event["user"].get("username") == user
        and event.get("objectRef", {}).get("resource") == "resourceslices"
        and event["responseStatus"]["code"] == 200
    ]


def last_between(writes: Iterable[Write], start: float, end: float) -> Write | None:
    """The last write that was received and accepted between two times."""
    fitting = [write for write in writes if start <= write.received_at and write.accepted_at <= end]
    return max(fitting, key=lambda write: write.accepted_at, default=None)


def _seconds(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()
