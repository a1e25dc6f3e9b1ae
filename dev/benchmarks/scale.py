"""`just bench scale N`: what N nodes cost one API server, and by extrapolation 5,000.

The publishers of all nodes run in this process. Each has a token of its own node, the rights of
`k8s/base`, and connections of its own. Of a control plane only etcd and the API server run, so that
all of their CPU time is due to the nodes, or to themselves: what they spend without nodes is
measured before, and subtracted.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import trio

from dev.benchmarks import account, machine, page
from dev.benchmarks.api import Api
from dev.benchmarks.cost import SERVER, Alone, Cost, Meter, cpu_ms
from dev.benchmarks.drivers import Command, Driver
from dev.benchmarks.fleet import Fleet
from dev.benchmarks.relay import Relay
from dev.benchmarks.tables import number, table
from dev.cluster.control_plane import ControlPlane
from dev.cluster.network import SERVER_PORT
from dev.cluster.releases import DEFAULT
from trio_npu_dra.agent.devices.features import SPREAD_SECONDS
from trio_npu_dra.kit.api.client import WATCH_SECONDS, open_client
from trio_npu_dra.kit.api.credentials import Credentials, in_cluster, load_credentials
from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.pool import PoolContent
from trio_npu_dra.lab.simulator import create_board, load_profile

DRIVER: Final = "npu.huawei.com"
PROFILE: Final = "910b4-8"
LARGE: Final = 5000
"""Nodes of a large cluster, the most that Kubernetes supports."""
AT_ONCE: Final = 20
"""Nodes that start at a time: this process and the API server share the machine's cores."""
SETTLE_SECONDS: Final = 5.0
"""After a phase, for requests that no node waits for."""
ALONE_SECONDS: Final = 10.0
"""How long etcd and the API server are watched without nodes."""
FILES_A_NODE: Final = 9
"""Open files: a watch and up to two connections more, each with three ends in this process."""
HEADER: Final = (
    *("phase", "requests", "refused", "connections", "received KiB", "sent KiB"),
    *("API CPU ms", "etcd CPU ms"),
)
START, QUIET, CHANGE, RESTART = "start", "quiet", "a device tainted", "API server restarted"


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    options = _options(arguments)
    # Each node would say that it lost the API server.
    logging.getLogger("trio_npu_dra").setLevel(logging.CRITICAL)
    _allow_files(options.nodes)
    with machine.place() as folder:
        plane = ControlPlane.start(folder=folder / "plane", logs=folder, only_api=True)
        try:
            facts = [*machine.facts(folder, DEFAULT), f"{options.nodes} nodes in the benchmark"]
            print("\n".join(facts), flush=True)
            pool = _published(plane, folder)
            # In a thread that lasts: the kernel ends programs with the thread that started them.
            with ThreadPoolExecutor(1) as starter:
                costs = trio.run(_measure, options, plane, starter, folder, pool)
        finally:
            plane.stop()
    shown = report(options.nodes, costs)
    print(f"\n{shown}")
    if options.save:
        page.save(options.save, "scale", facts, report=shown)


def _published(plane: ControlPlane, folder: Path) -> PoolContent:
    """What the driver publishes of a simulated board."""
    api, node = Api(plane), "node-of-sample"
    api.create_node(node)
    board = create_board(load_profile(PROFILE), folder / "host")
    words = (sys.executable, "-m", "trio_npu_dra.agent.cli.main", "serve", *board.flags())
    Driver.start(
        Command(name="sample", words=words), api, folder=folder / node, kubeconfig=plane.admin
    ).stop()
    pool = trio.run(_read_pool, plane.admin)
    api.remove_slices(node)
    return pool


async def _read_pool(kubeconfig: Path) -> PoolContent:
    async with open_client(load_credentials(kubeconfig)) as client:
        slices, _ = await client.list(ResourceSlice)
    return PoolContent(
        devices=tuple(device for each in slices for device in each.spec.devices or ()),
        shared_counters=tuple(part for each in slices for part in each.spec.shared_counters or ()),
    )


async def _measure(
    options: argparse.Namespace,
    plane: ControlPlane,
    starter: Executor,
    folder: Path,
    pool: PoolContent,
) -> dict[str, Cost]:
    async def restart() -> None:
        """Restart the API server; return when it is ready again."""
        started = starter.submit(plane.restart_apiserver)
        await trio.to_thread.run_sync(started.result)

    relay = Relay(plane.address, SERVER_PORT)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(relay.serve)
        admit = partial(_identities, plane, port, folder / "tokens", options.nodes)
        fleet = Fleet(await trio.to_thread.run_sync(admit), driver_name=DRIVER, pool=pool)
        meter = Meter(plane, relay, user=account.USER, alone=await _alone(plane, restart))
        costs = await _phases(options, restart, fleet, meter, nursery)
        nursery.cancel_scope.cancel()
    return costs


async def _phases(
    options: argparse.Namespace,
    restart: Callable[[], Awaitable[None]],
    fleet: Fleet,
    meter: Meter,
    nursery: trio.Nursery,
) -> dict[str, Cost]:
    costs = {}
    meter.begin()
    await fleet.start(nursery, at_once=AT_ONCE)
    costs[START] = await _settled(meter, further_watches=options.nodes)

    meter.begin()
    await trio.sleep(options.quiet)
    costs[QUIET] = meter.end(seconds=meter.elapsed)

    meter.begin()
    await fleet.taint()
    costs[CHANGE] = await _settled(meter)

    before = fleet.watch_restarts()
    meter.begin(with_start=True)
    await restart()
    await fleet.until_watching_again(before)
    # The old watches ended with the old server, so its log does not have them.
    costs[RESTART] = await _settled(
        meter, seconds=SPREAD_SECONDS + SETTLE_SECONDS, further_watches=options.nodes
    )
    return costs


async def _settled(
    meter: Meter, *, seconds: float = SETTLE_SECONDS, further_watches: int = 0
) -> Cost:
    """The cost of a phase, with the requests of the next *seconds*, for which no node waits."""
    took = meter.elapsed
    await trio.sleep(seconds)
    return meter.end(seconds=took, further_watches=further_watches)


async def _alone(plane: ControlPlane, restart: Callable[[], Awaitable[None]]) -> Alone:
    """What a start of the API server costs without nodes, and what nothing does."""
    before, began = cpu_ms(plane) | {SERVER: 0}, time.monotonic()
    await restart()
    await trio.sleep(SETTLE_SECONDS)
    started, quiet_at = cpu_ms(plane), time.monotonic()
    await trio.sleep(ALONE_SECONDS)
    late, now = cpu_ms(plane), time.monotonic()
    rates = {part: (late[part] - spent) / (now - quiet_at) for part, spent in started.items()}
    starts = {
        part: spent - before[part] - rates[part] * (quiet_at - began)
        for part, spent in started.items()
    }
    print(f"alone, ms of CPU: a start {_parts(starts)}, a quiet second {_parts(rates)}", flush=True)
    return Alone(start_ms=starts, ms_a_second=rates)


def _parts(values: Mapping[str, float]) -> str:
    return " and ".join(f"{number(value)} ({part})" for part, value in values.items())


def _identities(
    plane: ControlPlane, port: int, folder: Path, count: int
) -> Mapping[str, Credentials]:
    """Make nodes, and for each the files that the kubelet mounts into the driver's pod."""
    account.admit(plane)
    api = Api(plane)
    found = {}
    for index in range(count):
        name = f"node-{index:04}"
        account.mount(plane, api, folder / name, node=name)
        found[name] = in_cluster(account.environment(plane, port), folder / name)
    return found


def report(nodes: int, costs: Mapping[str, Cost]) -> str:
    """What a node costs, and what a large cluster would."""
    factor = LARGE / nodes
    each = {phase: cost.scaled(1 / nodes) for phase, cost in costs.items()}
    large = {phase: cost.scaled(factor) for phase, cost in costs.items()}
    quiet = large[QUIET].scaled(1 / costs[QUIET].seconds)
    measured = table(
        f"a node, of {nodes}",
        (*HEADER, "all took s"),
        [(phase, *_cells(cost), number(cost.seconds)) for phase, cost in each.items()],
    )
    extrapolated = table(
        f"{LARGE} nodes, extrapolated from {nodes}: {factor:g} times as much, not measured",
        HEADER,
        [(phase, *_cells(cost)) for phase, cost in large.items() if phase != QUIET],
    )
    calm = (
        f"{LARGE} nodes while quiet, extrapolated too: {number(quiet.requests)} requests, "
        f"{number(quiet.received / 1024)} KiB received\n"
        f"and {number(quiet.api_ms)} ms of API CPU a second. Watches are reopened every "
        f"{WATCH_SECONDS} s, which is\n{number(LARGE / WATCH_SECONDS)} requests a second; they are "
        "seen only if the quiet time is longer than that."
    )
    return f"{measured}\n\n{extrapolated}\n\n{calm}"


def _cells(cost: Cost) -> tuple[str, ...]:
    return tuple(
        number(value)
        for value in (
            *(cost.requests, cost.refused, cost.connections),
            *(cost.received / 1024, cost.sent / 1024),
            *(cost.api_ms, cost.etcd_ms),
        )
    )


def _allow_files(nodes: int) -> None:
    """Allow this process and its children as many open files as so many nodes need.

    Raises:
        SystemExit: The machine allows fewer.
    """
    wanted = 1024 + FILES_A_NODE * nodes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        sys.exit(
            f"{nodes} nodes need {wanted} open files, the limit is {hard}: raise it by ulimit -Hn"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="just bench scale", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("nodes", type=int, metavar="N", help="how many nodes")
    parser.add_argument(
        "--quiet", type=float, default=30, help="seconds without a change (default: 30)"
    )
    parser.add_argument(
        "--save",
        default="",
        metavar="FILE",
        help="where to keep the figures, for `just bench page`",
    )
    options = parser.parse_args(arguments)
    if options.nodes < 1:
        parser.error(f"N is {options.nodes}: there must be a node")
    return options
