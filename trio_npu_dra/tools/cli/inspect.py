"""`npu-dra inspect`: what this node would publish, and how its NPUs are connected.

All is read from the NPUs and the node's files; no cluster is asked.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

import trio
import yaml

from trio_npu_dra.agent.control.report import report_partitioning
from trio_npu_dra.agent.device_plugin.assignment import elsewhere, partitions_of
from trio_npu_dra.agent.device_plugin.selection import Selection
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.flags import add_flags
from trio_npu_dra.agent.holds.availability import pool_offers
from trio_npu_dra.agent.holds.files import read_holds
from trio_npu_dra.agent.settings import NodeSettings, host_node_name
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.ascend_driver import load_library
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.offers import Offer, PartitionMode, not_offered
from trio_npu_dra.ascend.single_look import read_board
from trio_npu_dra.kit.api.objects import (
    Device,
    DeviceTaint,
    ObjectMeta,
    OwnerReference,
    ResourceSlice,
)
from trio_npu_dra.kit.base import logs
from trio_npu_dra.kit.base.boot import SteadyClock
from trio_npu_dra.kit.base.errors import ConfigError
from trio_npu_dra.kit.base.storage import translated
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.kit.pool import Pool, PoolContent, plan
from trio_npu_dra.tools.cli import table
from trio_npu_dra.tools.cli.drawing import draw
from trio_npu_dra.tools.cli.topology import Topology, matrix, topology_of, wire

_COLUMNS = (
    "DEVICE",
    "CHIP",
    "MEMORY",
    "AI CORES",
    "NUMA",
    "GROUP",
    "PCI",
    "ADDRESS",
    "TAINTS",
    "HEALTH",
)
_STDOUT = Path("-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say where the NPUs are, and the form of the output."""
    add_flags(parser, NodeSettings)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "yaml", "json"),
        default="table",
        help="form of the output (default: table)",
    )
    parser.add_argument(
        "--topology",
        action="store_true",
        help="print how the NPUs are connected, with the nearest CPUs of each",
    )
    parser.add_argument(
        "--svg",
        type=Path,
        metavar="FILE",
        help="draw the node into FILE as well: NUMA nodes, PCIe roots, HCCS domains, health, and "
        "holders if the driver's records can be read; with - print the drawing alone",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the NPUs once and print them."""
    settings = NodeSettings.load(vars(arguments), os.environ)
    _taints(settings), _selection(settings)  # refused also on a node without NPUs
    logs.configure("warning", "text")
    host = Host(
        host_root=settings.host_root, dev_root=settings.dev_root, sysfs_root=settings.sysfs_root
    )
    board = trio.run(_read_board, settings, host)
    if arguments.topology or arguments.svg:
        topology = topology_of(
            board, host, node=settings.node_name, holds=read_holds(settings.plugin_directory)
        )
        if arguments.svg == _STDOUT:
            say(*draw(topology).rstrip("\n").split("\n"))
            return 0
        if arguments.svg:
            at = f"--svg={arguments.svg}"
            with translated("write it", lambda problem: ConfigError(f"{at}: {problem}")):
                arguments.svg.write_text(draw(topology), encoding="utf-8")
        if arguments.topology:
            _print_topology(topology, arguments.output)
            return 0
    _print_slices(board, settings, arguments.output)
    return 0


def _print_topology(topology: Topology, form: str) -> None:
    if form == "table":
        say(*matrix(topology))
    elif form == "json":
        say(*json.dumps(wire(topology), indent=2).splitlines())
    else:
        say(*yaml.safe_dump(wire(topology), sort_keys=False).splitlines())


def _print_slices(board: Board, settings: NodeSettings, form: str) -> None:
    if form == "table":
        say(*_table(board, settings))
        return
    slices = [slice_.to_wire() for slice_ in _slices(board, settings)]
    if form == "json":
        listed = {"apiVersion": "v1", "kind": "List", "items": slices}
        say(*json.dumps(listed, indent=2).splitlines())
    else:
        say(*yaml.safe_dump_all(slices, sort_keys=False).splitlines())


async def _read_board(settings: NodeSettings, host: Host) -> Board:
    dcmi = load_library(host)
    if dcmi is None:
        return EMPTY_BOARD
    folder, settle, clock = settings.plugin_directory, settings.evict_after, SteadyClock()
    faults = NodeFaults(folder, clock=clock, boot=clock.boot, settle_seconds=settle)
    async with open_worker() as worker:
        return await read_board(worker, dcmi, host, faults)


def _pool(board: Board, settings: NodeSettings) -> PoolContent:
    """The devices and counters as an API server with all features would store them."""
    features, shares = ServerFeatures(), settings.shares
    return build_pool(_offered(board, settings), board, _taints(settings), features, shares=shares)


def _offered(board: Board, settings: NodeSettings) -> tuple[Offer, ...]:
    """What can be handed out. Of the holds only partitions matter: they tell which are ours."""
    holds = [hold for hold in read_holds(settings.plugin_directory) or () if hold.partition]
    others = elsewhere(board, _selection(settings))
    return pool_offers(board, holds, _partitioning(settings), elsewhere=others)


def _taints(settings: NodeSettings) -> TaintPolicy:
    return TaintPolicy.parse(settings.taint_effect, domain=settings.driver_name)


def _selection(settings: NodeSettings) -> Selection:
    return Selection.parse(settings.device_plugin, shares=settings.device_plugin_shares)


def _partitioning(settings: NodeSettings) -> PartitionMode:
    return PartitionMode(is_on=settings.partitioning == "dynamic")


def _slices(board: Board, settings: NodeSettings) -> Sequence[ResourceSlice]:
    """The slices of a first start, without the owner: only the cluster knows the Node's UID.

    Raises:
        ConfigError: The Node's name is not given, and the host's name cannot be a Node's.
    """
    node = settings.node_name or host_node_name()
    content = _pool(board, settings)
    no_owner = OwnerReference(api_version="v1", kind="Node", name=node, uid="")
    pool = Pool(
        driver=settings.driver_name,
        node_name=node,
        owner=no_owner,
        devices=content.devices,
        shared_counters=content.shared_counters,
    )
    return [
        write.slice.with_metadata(ObjectMeta(generate_name=write.slice.metadata.generate_name))
        for write in plan((), pool)
    ]


def _table(board: Board, settings: NodeSettings) -> tuple[str, ...]:
    if not board.chips:
        return ("no NPU found", *board.gaps)
    offered = {offer.name: offer for offer in _offered(board, settings)}
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for device in _pool(board, settings).devices:
        offer = offered[device.name]
        how = " ".join(filter(None, (offer.health.state.value, offer.health.message)))
        taints = ",".join(_taint(taint) for taint in device.taints)
        rows.append((*_cells(device), _addresses(offer) or "-", taints or "-", how))
    elsewhere = _elsewhere(board, _selection(settings))
    hidden = (f"{name} is not offered: {why}" for name, why in not_offered(board).items())
    in_resources = (line for lines in elsewhere.values() for line in lines)
    cut = report_partitioning(
        board,
        read_holds(settings.plugin_directory) or (),
        _partitioning(settings),
        ServerFeatures(),
    )
    whole = (
        f"{name} is not cut: {why}" for name, why in cut.refused.items() if name not in elsewhere
    )
    lines = (*hidden, *in_resources, *whole, *map(str, cut.partitions))
    return (*table.lines(rows), *board.gaps, *lines)


def _elsewhere(board: Board, selection: Selection) -> dict[str, list[str]]:
    """The texts about chips that are for resources, by chip name."""
    found = {}
    for chip in board.chips:
        resource, shares = selection.resource_of(chip), selection.shares_of(chip)
        if resource is not None and chip.vnpus:
            partitions = partitions_of(board, chip, resource)
            found[chip.name] = [f"{one.name} is for {one.resource}" for one in partitions]
        elif resource is not None:
            divided = f", in {shares} shares" if shares > 1 else ""
            found[chip.name] = [f"{chip.name} is for {resource}{divided}"]
    return found


def _cells(device: Device) -> tuple[str, ...]:
    attributes, capacity = device.attributes, device.capacity

    def attribute(name: str) -> str:
        return str(attributes[name].value) if name in attributes else "-"

    def amount(name: str) -> str:
        return capacity[name].value if name in capacity else "-"

    return (
        device.name,
        attribute(fact_names.CHIP_NAME),
        amount(fact_names.MEMORY),
        amount(fact_names.AI_CORES),
        attribute(fact_names.NUMA_NODE),
        attribute(fact_names.TOPOLOGY_GROUP),
        attribute(fact_names.PCI_BUS_ID),
    )


def _addresses(offer: Offer) -> str:
    """Those of whole chips: no slice has them."""
    networks = [chip.network for chip in offer.chips if chip.network and not offer.partition]
    return ",".join(str(address) for network in networks for address in network.addresses)


def _taint(taint: DeviceTaint) -> str:
    """As kubectl has it, without the driver's domain: `fault=RestartNPU:NoExecute`."""
    key = taint.key.rpartition("/")[2]
    return "=".join(filter(None, (key, taint.value))) + f":{taint.effect}"
