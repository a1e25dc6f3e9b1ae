"""`just bench health`: from a fault of the hardware to the slice that shows it to the scheduler.

A fault begins or ends on the simulated board; a watch of ResourceSlices sees the NPU tainted or
well, no earlier than the API server accepted it. The benchmark runs once with the events of the
Ascend driver, and once with a driver that refuses them, so that NPUs are asked every 5 seconds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dev.benchmarks import machine
from dev.benchmarks.api import Api, SliceWatch, Wire
from dev.benchmarks.drivers import Command, Driver
from dev.benchmarks.goals import FAULT_GOAL_MS
from dev.benchmarks.health_floors import Floors
from dev.benchmarks.health_watch import Write, last_between, slice_updates
from dev.benchmarks.image import Image, image
from dev.benchmarks.tables import OURS, middle, number, show
from dev.cluster.control_plane import ControlPlane
from dev.cluster.releases import DEFAULT
from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.lab.simulator import (
    BoardControl,
    Severity,
    SimulatedBoard,
    create_board,
    load_profile,
)

NPUS: Final = 8
PROFILE: Final = "910b4-8"
FAULT: Final = 0x81B38002
"""RestartBusiness, however often it comes."""
NOT_SUPPORTED: Final = -8255
EVENTS, POLLING = "events", "polling"
PAUSES: Final = {EVENTS: (0.1, 0.4), POLLING: (0.0, 5.0)}
"""Seconds between two changes, at least and at most; changes must not keep step with polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """When a fault began or ended on the board, and when the watch saw it, since 1970."""

    made_at: float
    seen_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A driver with a board of its own; the name of its node is its user, too."""

    simulated: SimulatedBoard
    board: BoardControl
    kubeconfig: Path
    node: str


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = _options(arguments)
    with machine.place() as folder, image(OURS, folder) as built:
        plane = ControlPlane.start(folder=folder / "plane", logs=folder)
        try:
            facts = [*machine.facts(folder, DEFAULT), f"{OURS}: {built.facts()}"]
            print("\n".join(facts), flush=True)
            with _running(EVENTS, built, plane, folder) as running:
                told, floors = trio.run(_told, running, Api(plane), options.changes)
                writes = slice_updates(plane.audit_log, running.node)
            with _running(POLLING, built, plane, folder) as running:
                asked = trio.run(
                    _change, running, Api(plane), options.polls, trio.lowlevel.checkpoint
                )
        finally:
            plane.stop()
    _show(told, writes, asked, floors)


@contextmanager
def _running(way: str, built: Image, plane: ControlPlane, folder: Path) -> Iterator[Running]:
    """A driver that gets fault events, or has to poll."""
    api = Api(plane)
    api.create_node(way)
    kubeconfig = plane.authority.kubeconfig(
        way, server=plane.server, user=way, group="system:masters"
    )
    # Compiled here, not in the image, because the floors load it in this process.
    simulated = create_board(load_profile(PROFILE), folder / f"host-{way}")
    with simulated.control() as board:
        if way == POLLING:
            board.set_return_code("dcmi_subscribe_fault_event", NOT_SUPPORTED)
        words = built.command("npu-dra", "serve", *simulated.flags())
        driver = Driver.start(
            Command(name=way, words=words), api, folder=folder / way, kubeconfig=kubeconfig
        )
        try:
            yield Running(simulated=simulated, board=board, kubeconfig=kubeconfig, node=way)
        finally:
            driver.stop()


async def _told(
    running: Running, api: Api, count: int
) -> tuple[list[Change], dict[str, list[float]]]:
    """The changes of a driver with events, and the floors measured between them."""
    async with open_client(load_credentials(running.kubeconfig)) as client:
        floors = Floors(client, Dcmi.load(running.simulated.root), running.board)
        await floors.prepare(running.node)
        changes = await _change(running, api, count, floors.measure)
    return changes, floors.samples


async def _change(
    running: Running, api: Api, count: int, between: Callable[[], Awaitable[None]]
) -> list[Change]:
    """Begin and end faults, *count* times in all, one NPU after the other."""
    changes: list[Change] = []
    watch = SliceWatch(api, running.node, driver="npu.huawei.com")
    for turn in range(count):
        await trio.sleep(random.uniform(*PAUSES[running.node]))  # noqa: S311 - no secret
        chip, is_unhealthy = turn // 2 % NPUS, turn % 2 == 0
        made_at = time.time()
        if is_unhealthy:
            running.board.add_fault(chip, FAULT, Severity.CRITICAL)
        else:
            running.board.clear_fault(chip, FAULT)
        shows = partial(_shows, f"npu-{chip}", is_unhealthy)
        wait = partial(watch.wait, shows, since=made_at)
        changes.append(Change(made_at=made_at, seen_at=await trio.to_thread.run_sync(wait)))
        await between()
    watch.close()
    return changes


def _shows(name: str, is_unhealthy: bool, devices: Sequence[Wire]) -> bool:
    """Whether a device is there with that health."""
    return (name, is_unhealthy) in {(one["name"], bool(one.get("taints"))) for one in devices}


def _show(
    told: Sequence[Change],
    writes: Sequence[Write],
    asked: Sequence[Change],
    floors: dict[str, list[float]],
) -> None:
    reached = [last_between(writes, change.made_at, change.seen_at) for change in told]
    pairs = [
        (change, write) for change, write in zip(told, reached, strict=True) if write is not None
    ]
    seen = [1000 * (change.seen_at - change.made_at) for change in told]
    accepted = [1000 * (write.accepted_at - change.made_at) for change, write in pairs]
    rows = {
        "until the API server has the request": [
            1000 * (write.received_at - change.made_at) for change, write in pairs
        ],
        "until the API server has accepted it": accepted,
        "until a watcher sees it: faults": seen[::2],
        "until a watcher sees it: recoveries": seen[1::2],
        "until a watcher sees it": seen,
    }
    _show_times(f"a fault begins or ends, the driver is told ({len(told)} times; ms)", rows)
    polled = [1000 * (change.seen_at - change.made_at) for change in asked]
    _show_times(
        f"the same, NPUs are asked every 5 s ({len(asked)} times; ms)",
        {"until a watcher sees it": polled},
    )
    _show_times("floors, beside the first (ms)", floors)
    print(
        f"\ngoal: p99 under {FAULT_GOAL_MS} ms until it is accepted, with events; "
        f"here {middle(accepted)[1]} ms"
    )


def _show_times(title: str, rows: dict[str, list[float]]) -> None:
    show(
        title,
        ("step", "median", "p99", "most"),
        [(name, *middle(values), number(max(values))) for name, values in rows.items()],
    )


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="just bench health", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--changes", type=int, default=200, help="changes with events (default: 200)"
    )
    parser.add_argument(
        "--polls", type=int, default=20, help="changes without events (default: 20)"
    )
    return parser.parse_args(arguments)
