"""The driver under a storm of fault events, and with a library call that hangs."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest

from dev.benchmarks.caller import Caller
from dev.cluster import audit
from dev.cluster.api import Object
from dev.cluster.driver import ACCOUNT, NPUS, PLUGIN, Driver
from tests.e2e.faults import KEEPS_PODS, Faults
from tests.e2e.space import Space, request
from trio_npu_dra.kit.base.pace import AT_ONCE, PER_SECOND

pytestmark = pytest.mark.cluster

EVENTS = 10_000
STORM_SECONDS = 10.0
CALL_EVERY_SECONDS = 0.05
READ = "dcmi_get_device_health"
MOST_EVENTS = 100
"""Writes of Events in a storm: of each of ten or so objects one every few seconds."""


class Calls:
    """Empty NodePrepareResources calls, one after the other, from outside.

    Attributes:
        took_ms: How long each took.
    """

    def __init__(self, socket: Path) -> None:
        self.took_ms: list[float] = []
        self._caller = Caller(socket)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Make no more."""
        self._end.set()
        self._thread.join()
        self._caller.close()

    def _run(self) -> None:
        while not self._end.wait(CALL_EVERY_SECONDS):
            self.took_ms.append(self._caller.prepare([]))


@contextmanager
def calling(driver: Driver) -> Iterator[Calls]:
    """Calls go to the driver's service socket all the while."""
    folder = driver.cluster.node.root / PLUGIN.relative_to("/")
    (socket,) = folder.glob("dra-*.sock")
    calls = Calls(socket)
    try:
        yield calls
    finally:
        calls.close()


def heard_events(faults: Faults) -> float:
    """How many fault events the daemon has received."""
    name = "npu_dra_fault_events_total"
    kinds = ("occurrence", "recovery", "notice")
    return sum(faults.metric(name, assertion=kind) or 0.0 for kind in kinds)


def storm(faults: Faults, unhealthy: set[str]) -> float:
    """Thousands of events over all NPUs; in the end just some are unhealthy.

    Returns:
        Seconds that it took.
    """
    devices = [f"npu-{physical_id}" for physical_id in range(NPUS)]
    began = time.monotonic()
    rounds = EVENTS // NPUS // 2
    for turn in range(rounds):
        for device in devices:
            faults.begin(device, KEEPS_PODS)
        _wait_until(began + STORM_SECONDS * (turn + 0.5) / rounds)
        for device in devices:
            if turn < rounds - 1 or device not in unhealthy:
                faults.end(device, KEEPS_PODS)
            else:
                faults.look(device)
        _wait_until(began + STORM_SECONDS * (turn + 1) / rounds)
    return time.monotonic() - began


def _wait_until(at: float) -> None:
    time.sleep(max(0.0, at - time.monotonic()))  # the rate is what is tested


def test_storm_of_events_ends_in_the_right_state(
    driver: Driver, faults: Faults, notes: list[str]
) -> None:
    """A thousand events a second: slices are right in the end, after few writes.

    Meanwhile calls of the kubelet are answered.
    """
    unhealthy = {"npu-1", "npu-6"}
    before, pid = driver.devices(), driver.pid()
    rss = driver.memory_mib()["VmRSS"]
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the kernel's VmHWM
    heard = heard_events(faults)
    mark, began = driver.cluster.audit_mark(), time.monotonic()
    with calling(driver) as calls:
        took = storm(faults, unhealthy)

        def is_settled() -> bool:
            return {name for name in before if faults.taints(name)} == unhealthy

        driver.cluster.wait(is_settled, f"taints on {unhealthy} alone")
    seconds = time.monotonic() - began
    writes = audit.writes(driver.cluster.audit(mark), user=ACCOUNT)
    kinds = Counter(f"{write.verb} {write.resource} {write.code}" for write in writes)
    memory = driver.memory_mib()
    worst = sorted(calls.took_ms)
    notes += [
        f"storm: {EVENTS} events in {took:.1f} s, {heard_events(faults) - heard:.0f} of them heard",
        f"storm: API writes: {dict(kinds)}",
        f"storm: {len(worst)} empty calls, median {median(worst):.1f} ms, longest {worst[-1]:.1f}",
        f"storm: RSS {rss:.0f} MiB before, then {memory}",
    ]

    assert driver.pid() == pid
    slices = len(audit.writes(writes, resource="resourceslices"))
    assert 1 <= slices <= AT_ONCE + PER_SECOND * seconds
    assert len(writes) - slices <= MOST_EVENTS
    for device in unhealthy:
        faults.end(device, KEEPS_PODS)
    driver.cluster.wait(lambda: driver.devices() == before, "the pool as it was")


def test_call_that_never_returns_costs_one_npu_its_monitoring(
    driver: Driver, faults: Faults, space: Space, notes: list[str]
) -> None:
    """Pods with other NPUs start; the call is named until it returns, and then all is well."""
    before, hung = driver.devices(), "npu-5"
    faults.board.hang(READ, 5)
    try:
        faults.look(hung)
        start_pod(space, "meanwhile")
        driver.cluster.wait(lambda: faults.report().hung_calls, "a call written off")
        driver.cluster.wait(lambda: faults.npu(hung).state == "Unknown", "it to count as hung")
        start_pod(space, "after")
        notes += ["", *faults.health().splitlines(), ""]
        notes += [f"hung call: claim prepared in {ms} ms" for ms in prepared_ms(driver, space)]
        assert [call.device for call in faults.report().hung_calls] == [hung]
        assert faults.npu(hung).state == "Unknown"
        assert faults.metric("npu_dra_dcmi_calls_written_off") == 1
        assert faults.metric("npu_dra_npu_unmonitored", device=hung) == 1
        (taint,) = faults.taints(hung)
        assert taint == {"key": "npu.huawei.com/unmonitored", "effect": "NoSchedule"}
    finally:
        faults.board.release(READ, 5)

    driver.cluster.wait(lambda: driver.devices() == before, "the pool as it was")
    assert faults.report().hung_calls == ()
    assert faults.npu(hung).unmonitored == ""
    assert faults.metric("npu_dra_dcmi_calls_written_off") == 0
    assert faults.metric("npu_dra_npu_unmonitored", device=hung) == 0


def start_pod(space: Space, name: str) -> Object:
    """A pod runs with an NPU that answers."""
    other = 'device.attributes["npu.huawei.com"].physicalId != 5'
    return space.start(name, request(cel=other))


def prepared_ms(driver: Driver, space: Space) -> list[str]:
    """How long the claims of a namespace took to prepare, as the driver reports it."""
    lines = [line for line in driver.log().splitlines() if '"claim prepared"' in line]
    return re.findall(rf'"{space.name}/.*"ms": ([\d.]+)', "\n".join(lines))
