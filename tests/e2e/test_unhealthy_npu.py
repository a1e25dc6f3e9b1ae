"""What operators see of an unhealthy NPU: Events, `npu-dra health`, and how they release it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from dev.cluster.driver import DRIVER, Driver
from dev.cluster.processes import ClusterError
from tests.e2e.faults import number
from tests.e2e.space import Space, request
from trio_npu_dra.lab.simulator import BoardControl, Severity

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

FAULT = 0x80E01801
"""The work must be restarted; the second time in a day the NPU is separated."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """An NPU that a pod holds, whatever is wrong with it."""

    driver: Driver
    space: Space
    board: BoardControl
    device: str

    @property
    def number(self) -> int:
        """Its physical id."""
        return number(self.device)

    def described(self) -> tuple[str, str]:
        """What kubectl describes of the Node and of the claim."""
        cluster = self.driver.cluster
        return (
            cluster.kubectl("describe", "node", cluster.node.name),
            cluster.kubectl("describe", "resourceclaim", "user", "--namespace", self.space.name),
        )

    def wait_described(self, kind: str, reason: str, words: str) -> list[str]:
        """Wait until both have an Event about this NPU; returns its two lines."""

        def look() -> list[str] | None:
            lines = [_event_line(text, kind, reason, self.device) for text in self.described()]
            return lines if all(words in line for line in lines) else None

        return self.driver.cluster.wait(look, f"Events {reason} with {words!r}")

    def command(self, *words: str) -> str:
        """`npu-dra` in the driver's pod."""
        return self.driver.execute("npu-dra", *words)

    def row(self) -> str:
        """The NPU's row of `npu-dra health`."""
        lines = self.command("health").splitlines()
        return next(line for line in lines if line.startswith(f"{self.device} "))

    def wait_row(self, word: str) -> str:
        """Wait until the row has that word; without an event the driver looks once a minute."""

        def look() -> str | None:
            row = self.row()
            return row if word in row.split() else None

        return self.driver.cluster.wait(look, f"{self.device} {word}")


def _event_line(described: str, kind: str, reason: str, device: str) -> str:
    """The line of the newest such Event that was said of the device, empty without one."""
    found = [
        line
        for line in described.splitlines()
        if line.split()[:2] == [kind, reason] and f" {device}: " in line
    ]
    return found[-1] if found else ""


@pytest.fixture
def held(driver: Driver, space: Space) -> Iterator[Held]:
    """A pod with an NPU, on a claim that tolerates faults; the NPU is well before and after."""
    tolerant = request()
    tolerant["exactly"]["tolerations"] = [
        {"key": f"{DRIVER}/fault", "operator": "Exists", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]
    space.start("user", tolerant)
    (device,) = space.allocated("user")
    with driver.board() as board:
        held = Held(driver=driver, space=space, board=board, device=device)
        yield held
        board.restore(held.number)
        with suppress(ClusterError):  # the test may have released it
            held.command("health", "release", device)
        held.wait_row("NormalNPU")


def test_a_unhealthy_npu_is_described_shown_and_released(held: Held) -> None:
    """Events on Node and claim, the holder in `npu-dra health`, and a release by hand."""
    board, number = held.board, held.number

    board.add_fault(number, FAULT, Severity.MAJOR)
    held.wait_described("Warning", "NpuFault", "80E01801")
    board.clear_fault(number, FAULT)
    held.wait_described("Normal", "NpuRecovered", "has recovered")

    board.add_fault(number, FAULT, Severity.MAJOR)
    lines = held.wait_described("Warning", "NpuSeparated", f"npu-dra health release {held.device}")
    assert all(f" {DRIVER} " in line for line in lines)
    board.clear_fault(number, FAULT)

    row = held.wait_row("ManuallySeparateNPU")
    assert "80E01801" in row
    assert row.endswith(f"2 times in 24 h  {held.space.name}/user")

    assert "is released" in held.command("health", "release", held.device)
    assert held.wait_row("NormalNPU").endswith(f"{held.space.name}/user")
    _, of_claim = held.wait_described("Normal", "NpuRecovered", " over ")
    assert "(x2 over " in of_claim, "the Node's may count what earlier tests did"
