"""`just bench`: start a control plane, play scheduler and kubelet, print the drivers' figures.

The driver runs in the root of its image, and beside it dra-example-driver, in the same rounds.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

from dev.benchmarks import account, machine, page, tables
from dev.benchmarks.api import Api, RawGets
from dev.benchmarks.drivers import Command, Driver
from dev.benchmarks.goals import FIRST_SLICE, GET_INFO, RSS
from dev.benchmarks.idle import watch_idle
from dev.benchmarks.image import Image, commit_of, image
from dev.benchmarks.rounds import CLAIMS, Samples, play
from dev.benchmarks.tables import BASE, EXAMPLE, OURS, Measured
from dev.cluster.binaries import dra_example_driver
from dev.cluster.control_plane import ControlPlane
from dev.cluster.processes import run
from dev.cluster.releases import DEFAULT
from trio_npu_dra.lab.simulator import create_board, load_profile

PROFILE = "910b4-8"
UNTHROTTLED = ("--kube-api-qps=10000", "--kube-api-burst=10000")
"""Otherwise client-go sends five requests a second, and a prepare that has to wait takes 200 ms."""
IMPORTS = 5

Rounds = dict[str, list[Samples]]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = _options(arguments)
    example = Command(name=EXAMPLE, words=(str(dra_example_driver()), *UNTHROTTLED))
    with machine.place() as folder, _images(options.compare, folder) as built:
        plane = ControlPlane.start(folder=folder / "plane", logs=folder)
        try:
            facts = [
                *machine.facts(folder, DEFAULT),
                *(f"{name}: {each.facts()}" for name, each in built.items()),
                f"{EXAMPLE} 0.4.0, unthrottled, in the same rounds",
            ]
            print("\n".join(facts), flush=True)
            api = Api(plane)
            account.admit(plane)
            simulator = built[OURS].board
            ours = [
                _in_pod(each.with_account(plane, api, node=_node(name)), name, folder, simulator)
                for name, each in built.items()
            ]
            drivers = _measure(options, [*ours, example], plane, api, folder)
            imports = _import_ms(built[OURS])
        finally:
            plane.stop()
    _show(drivers, imports, options.idle)
    if options.save:
        kept = {name: asdict(measured) for name, measured in drivers.items()}
        page.save(options.save, "claims", facts, drivers=kept)


@contextmanager
def _images(base: str, folder: Path) -> Iterator[Mapping[str, Image]]:
    """The image of this tree, and of a commit to compare with, if any."""
    with ExitStack() as stack:
        built = {OURS: stack.enter_context(image(OURS, folder))}
        if base:
            built[BASE] = stack.enter_context(image(BASE, folder, commit=commit_of(base)))
        yield built


def _in_pod(pod: Image, name: str, folder: Path, simulator: Path) -> Command:
    """Our driver of an image, on a board of its own; all boards are of this tree's simulator."""
    board = create_board(load_profile(PROFILE), folder / f"host-of-{name}", prebuilt=simulator)
    words = pod.command("npu-dra", "serve", *board.flags())
    return Command(name=name, words=words, is_in_pod=True)


def _measure(
    options: argparse.Namespace,
    commands: Sequence[Command],
    plane: ControlPlane,
    api: Api,
    folder: Path,
) -> dict[str, Measured]:
    for command in commands:
        if not command.is_in_pod:  # otherwise its Node is there
            api.create_node(_node(command.name))
    running, starts = _start_all(commands, api, plane, folder, options.starts)
    try:
        idle = watch_idle(running, plane.audit_log, options.idle)
        rounds = _play_all(running, api, options.rounds)
        holding = watch_idle(running, plane.audit_log, options.idle)
    finally:
        for driver in running:
            driver.stop()
    return {
        name: Measured(
            rounds=[*starts[name], *rounds[name], {RSS: [last.rss_mib]}],
            idle=idle[name],
            holding=last,
        )
        for name, last in holding.items()
    }


def _start_all(
    commands: Sequence[Command], api: Api, plane: ControlPlane, folder: Path, count: int
) -> tuple[list[Driver], Rounds]:
    """Start every driver *count* times, in turn.

    Returns:
        The last ones, which keep running, and how long all took.
    """
    kubeconfigs = {
        command.name: plane.authority.kubeconfig(
            command.name, server=plane.server, user=command.name, group="system:masters"
        )
        for command in commands
    }
    running: list[Driver] = []
    starts: Rounds = defaultdict(list)
    for number in range(count):
        for command in commands:
            driver = Driver.start(
                command,
                api,
                folder=folder / _node(command.name),
                kubeconfig=kubeconfigs[command.name],
            )
            starts[command.name].append(
                {GET_INFO: [driver.get_info_ms], FIRST_SLICE: [driver.slice_ms]}
            )
            if number < count - 1:
                driver.stop()
            else:
                running.append(driver)
    return running, starts


def _play_all(drivers: Sequence[Driver], api: Api, count: int) -> Rounds:
    """Rounds of all drivers, after one that does not count; then hold all claims.

    Each round begins with another driver, so that none has the better place.
    """
    claims = {
        driver.name: [
            api.create_claim(f"{driver.name}-{number}", allocation)
            for number, allocation in enumerate(driver.allocations[:CLAIMS])
        ]
        for driver in drivers
    }
    gets = {driver.name: RawGets(api, claims[driver.name]) for driver in drivers}
    rounds: Rounds = defaultdict(list)
    for number in range(count + 1):
        first = number % len(drivers)
        for driver in (*drivers[first:], *drivers[:first]):
            samples = play(driver, claims[driver.name], gets[driver.name])
            if number:
                rounds[driver.name].append(samples)
    for driver in drivers:
        gets[driver.name].close()
        driver.caller.prepare(claims[driver.name])
    return rounds


def _import_ms(built: Image) -> float:
    """The lower bound of a start: Python and the daemon's imports, in ms."""
    took = []
    for _ in range(IMPORTS):
        began = time.perf_counter()
        run(*built.command("python3", "-c", "import trio_npu_dra.agent.daemon"))
        took.append(1000 * (time.perf_counter() - began))
    return median(took)


def _show(drivers: Mapping[str, Measured], imports: float, idle_seconds: float) -> None:
    tables.show_rounds(drivers)
    tables.show_starts(drivers, imports)
    idle = {name: measured.idle for name, measured in drivers.items()}
    tables.show_idle(f"idle for {idle_seconds:g} s after the start", idle)
    holding = {name: measured.holding for name, measured in drivers.items()}
    tables.show_idle(f"idle for {idle_seconds:g} s, {CLAIMS} claims prepared", holding)
    if BASE in drivers:
        tables.show_ratios(BASE, drivers)
    tables.show_goals(drivers)


def _node(name: str) -> str:
    return f"node-of-{name}"


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="just bench", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=40, help="rounds (default: 40)")
    parser.add_argument("--starts", type=int, default=5, help="starts of a driver (default: 5)")
    parser.add_argument("--idle", type=float, default=20, help="seconds of idling (default: 20)")
    parser.add_argument(
        "--compare",
        default="",
        metavar="BASE",
        help="a commit whose image is measured in the same rounds",
    )
    parser.add_argument(
        "--save",
        default="",
        metavar="FILE",
        help="where to keep the figures, for `just bench page`",
    )
    return parser.parse_args(arguments)
