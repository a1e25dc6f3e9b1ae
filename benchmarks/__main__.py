"""`just bench`: start a control plane, play scheduler and kubelet, print the drivers' figures.

`just bench health` is another benchmark: how long it takes until the API server knows a fault.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks import health, machine, tables
from benchmarks.api import Api, RawGets
from benchmarks.drivers import Command, Driver
from benchmarks.idle import watch_idle
from benchmarks.rounds import CLAIMS, Samples, play
from tests.cluster.binaries import kubernetes
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import run
from tests.cluster.releases import DEFAULT
from trio_npu_dra.simulator import create_board, load_profile

PROFILE = "910b4-8"
OURS = "npu-dra"
IMPORTS = 5


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["health"]:
        health.main(sys.argv[2:])
        return
    options = _options()
    with machine.place() as folder:
        programs = kubernetes(DEFAULT).ready()
        plane = ControlPlane.start(programs=programs, folder=folder / "plane", logs=folder)
        try:
            print("\n".join(machine.facts(folder, DEFAULT)), flush=True)
            commands = [_ours(folder), *map(Command.parse, options.beside)]
            _measure(options, commands, plane, folder)
        finally:
            plane.stop()


def _measure(
    options: argparse.Namespace, commands: Sequence[Command], plane: ControlPlane, folder: Path
) -> None:
    api = Api(plane)
    for command in commands:
        api.create_node(_node(command))
    starts = _start_all(commands, api, plane, folder, options.starts)
    running = [drivers[-1] for drivers in starts.values()]
    try:
        idle = watch_idle(running, plane.audit_log, options.idle)
        rounds = _play_all(running, api, options.rounds)
        holding = watch_idle(running, plane.audit_log, options.idle)
    finally:
        for driver in running:
            driver.stop()
    tables.show_rounds(rounds)
    tables.show_starts(starts, _import_ms())
    tables.show_idle(f"idle for {options.idle:g} s after the start", idle)
    tables.show_idle(f"idle for {options.idle:g} s, {CLAIMS} claims prepared", holding)
    tables.show_goals(rounds[OURS], starts[OURS], idle[OURS])


def _start_all(
    commands: Sequence[Command], api: Api, plane: ControlPlane, folder: Path, count: int
) -> dict[str, list[Driver]]:
    """Start every driver *count* times, in turn; the last ones keep running."""
    kubeconfigs = {
        command.name: plane.authority.kubeconfig(
            command.name, server=plane.server, user=command.name, group="system:masters"
        )
        for command in commands
    }
    started: dict[str, list[Driver]] = {command.name: [] for command in commands}
    for number in range(count):
        for command in commands:
            driver = Driver.start(
                command,
                api,
                folder=folder / _node(command),
                kubeconfig=kubeconfigs[command.name],
            )
            started[command.name].append(driver)
            if number < count - 1:
                driver.stop()
    return started


def _play_all(drivers: Sequence[Driver], api: Api, count: int) -> dict[str, list[Samples]]:
    """Rounds of all drivers, interleaved, after one that does not count."""
    claims = {
        driver.name: [
            api.create_claim(f"{driver.name}-{number}", device)
            for number, device in enumerate(driver.devices[:CLAIMS])
        ]
        for driver in drivers
    }
    gets = {driver.name: RawGets(api, claims[driver.name]) for driver in drivers}
    rounds: dict[str, list[Samples]] = {driver.name: [] for driver in drivers}
    for number in range(count + 1):
        for driver in drivers:
            samples = play(driver, claims[driver.name], gets[driver.name])
            if number:
                rounds[driver.name].append(samples)
    for driver in drivers:
        gets[driver.name].close()
        driver.caller.prepare(claims[driver.name])
    return rounds


def _ours(folder: Path) -> Command:
    """The driver of this tree, on a simulated board in *folder*."""
    board = create_board(load_profile(PROFILE), folder / "host")
    return Command(
        name=OURS,
        words=(sys.executable, "-m", "trio_npu_dra.cli.main", "serve", *board.flags()),
    )


def _import_ms() -> float:
    """The lower bound of a start: Python and the daemon's imports, in ms."""
    took = []
    for _ in range(IMPORTS):
        began = time.perf_counter()
        run(sys.executable, "-c", "import trio_npu_dra.daemon")
        took.append(1000 * (time.perf_counter() - began))
    return median(took)


def _node(command: Command) -> str:
    return f"node-of-{command.name}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="just bench", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=40, help="rounds (default: 40)")
    parser.add_argument("--starts", type=int, default=5, help="starts of a driver (default: 5)")
    parser.add_argument("--idle", type=float, default=20, help="seconds of idling (default: 20)")
    parser.add_argument(
        "--beside",
        action="append",
        default=[],
        metavar="COMMAND",
        help="another DRA driver that knows the same flags, measured in the same rounds",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
