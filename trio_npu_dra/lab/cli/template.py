"""`npu-dra template`: what every node of a kind will publish, as autoscalers want it.

An autoscaler that starts nodes of a kind from zero must know their devices before there are any.
They come from a simulated board, or from the pool of a node that runs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import trio
import yaml

from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.node_kind import joined, of_kind, unjoined
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.flags import add_flags, flag
from trio_npu_dra.agent.settings import MeetingSettings
from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.ascend_driver import load_library
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.listing import list_chips
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board
from trio_npu_dra.ascend.offers import OfferKind, PartitionMode, offers
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.objects import (
    DeviceAttribute,
    ObjectMeta,
    OwnerReference,
    ResourceSlice,
    ResourceSliceSpec,
)
from trio_npu_dra.kit.base import logs
from trio_npu_dra.kit.base.errors import ConfigError, DriverError
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.kit.pool import Pool, PoolContent, specs
from trio_npu_dra.lab.simulator import create_board, load_profile, profile_names
from trio_npu_dra.revision import USER_AGENT
from trio_npu_dra.tools.login import access

_NAME: Final = "template"
"""What stands for the names of node and pool."""
_OF_BOARD: Final = ("sharing", "shares_per_npu", "partitioning")
"""Settings that a published pool was made with already."""
_OF_CLUSTER: Final = ("kubeconfig", "context")
_ANNOTATIONS: Final = "capacity.cluster-autoscaler.kubernetes.io"

Wire = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which kind of node, and for which autoscaler."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--board",
        choices=profile_names(),
        metavar="PROFILE",
        help=f"a node with this board, which is simulated: {', '.join(profile_names())}",
    )
    source.add_argument(
        "--from-node", metavar="NAME", help="a node with the pool that this one has published"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=_FORMS,
        default="slices",
        help="ResourceSlices (default), DynamicResources of an instance type of Karpenter, the "
        "DRAConfig of Karpenter's dra-kwok-driver, or annotations for a MachineDeployment of "
        "Cluster API",
    )
    access.add_arguments(parser)
    add_flags(parser, MeetingSettings, only=("driver_name", *_OF_BOARD))


def run(arguments: argparse.Namespace) -> int:
    """Print the template.

    Raises:
        ConfigError: A flag is wrong, or is for the other source.
        DriverError: The node has no pool, or the form cannot have such a pool.
        KubeError: The API server refuses, or is unreachable.
    """
    flags = {name: value for name, value in vars(arguments).items() if name != "kubeconfig"}
    settings = MeetingSettings.load(flags, os.environ)
    logs.configure("warning", "text")
    if arguments.board:
        for name in _OF_CLUSTER:
            if getattr(arguments, name):
                raise ConfigError(f"{flag(name)} is for --from-node: a board needs no cluster")
        content = _of_board(arguments.board, settings)
    else:
        for name in _OF_BOARD:
            if getattr(arguments, name) is not None:
                raise ConfigError(
                    f"{flag(name)} is for --board: the flags of the driver have made the pool of a "
                    "node as it is"
                )
        content = trio.run(_published, arguments, settings.driver_name)
    pool = Pool(
        driver=settings.driver_name,
        node_name=_NAME,
        owner=OwnerReference(api_version="v1", kind="Node", name=_NAME, uid=""),
        devices=tuple(map(of_kind, content.devices)),
        shared_counters=content.shared_counters,
    )
    documents = _FORMS[arguments.output](pool)
    say(*yaml.dump_all(documents, Dumper=_Plain, sort_keys=False).splitlines())
    return 0


# --- where the pool comes from -------------------------------------------------------------------


def _of_board(profile: str, settings: MeetingSettings) -> PoolContent:
    with tempfile.TemporaryDirectory(prefix="npu-") as folder:
        simulated = create_board(load_profile(profile), Path(folder))
        host = Host(
            host_root=simulated.root,
            dev_root=simulated.dev_root,
            sysfs_root=simulated.sysfs_root,
        )
        board = trio.run(_look, host)
    return build_pool(
        offers(board, PartitionMode(is_on=settings.partitioning == "dynamic")),
        board,
        TaintPolicy(domain=settings.driver_name),
        ServerFeatures(),
        shares=settings.shares,
    )


async def _look(host: Host) -> Board:
    dcmi = load_library(host)
    assert dcmi is not None
    async with open_worker() as worker:
        return await list_chips(worker, dcmi, host, EMPTY_BOARD)


async def _published(asked: argparse.Namespace, driver: str) -> PoolContent:
    """The newest pool of a node."""
    node = asked.from_node
    credentials, _ = await access.credentials(asked)
    async with open_client(credentials, user_agent=USER_AGENT) as client:
        slices, _ = await client.list(
            ResourceSlice, field_selector=f"spec.driver={driver},spec.nodeName={node}"
        )
    newest = max((one.spec.pool.generation for one in slices), default=0)
    found = sorted(
        (one for one in slices if one.spec.pool.generation == newest),
        key=lambda one: one.metadata.name,
    )
    if not found:
        raise DriverError(f"node {node} has no pool of {driver}")
    if len(found) != (wanted := found[0].spec.pool.resource_slice_count):
        raise DriverError(
            f"the pool of node {node} is incomplete, {len(found)} of its {wanted} ResourceSlices "
            "are there: try again"
        )
    return PoolContent(
        devices=tuple(device for one in found for device in one.spec.devices),
        shared_counters=tuple(each for one in found for each in one.spec.shared_counters),
    )


# --- forms ---------------------------------------------------------------------------------------


def _slices(pool: Pool) -> list[Wire]:
    return [
        ResourceSlice(metadata=ObjectMeta(name=f"{_NAME}-{number}"), spec=spec).to_wire()
        for number, spec in enumerate(specs(pool, generation=1))
    ]


def _karpenter(pool: Pool) -> list[Wire]:
    """`cloudprovider.DynamicResources`: values that are not known before become bindings."""
    unbound = replace(pool, devices=tuple(map(unjoined, pool.devices)))
    bindings = [
        {
            "attribute": name if "/" in name else f"{pool.driver}/{name}",
            "devices": [{"driver": pool.driver, "pool": _NAME, "device": one} for one in group],
        }
        for name, groups in joined(pool.devices).items()
        for group in groups
    ]
    templates = [
        {"driver": pool.driver, "pool": {"name": _NAME}, **_parts(spec)}
        for spec in specs(unbound, generation=1)
    ]
    return [{"resourceSliceTemplates": templates, "attributeBindings": bindings}]


def _draconfig(pool: Pool) -> list[Wire]:
    if pool.shared_counters:
        raise DriverError("a DRAConfig has no counters, so it cannot have a pool with partitions")
    kind = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["CHANGE-ME"]}
    of_pool = {
        "name": "npu",
        "nodeSelectorTerms": [{"matchExpressions": [kind]}],
        "resourceSlices": [_parts(spec) for spec in specs(pool, generation=1)],
    }
    return [
        {
            "apiVersion": "test.karpenter.sh/v1alpha1",
            "kind": "DRAConfig",
            "metadata": {"name": "npu"},
            "spec": {"driver": pool.driver, "pools": [of_pool]},
        }
    ]


def _capi(pool: Pool) -> list[Wire]:
    """Of whole NPUs: the autoscaler invents devices with the attribute `type` alone."""
    partition = DeviceAttribute(string=OfferKind.VNPU)
    count = sum(one.attributes.get(fact_names.TYPE) != partition for one in pool.devices)
    annotations = {
        f"{_ANNOTATIONS}/dra-driver": pool.driver,
        f"{_ANNOTATIONS}/gpu-count": str(count),
    }
    return [{"metadata": {"annotations": annotations}}]


def _parts(spec: ResourceSliceSpec) -> Wire:
    """The devices or the counters of a slice."""
    wire = spec.to_wire()
    return {name: wire[name] for name in ("sharedCounters", "devices") if name in wire}


_FORMS: Final[Mapping[str, Callable[[Pool], list[Wire]]]] = {
    "slices": _slices,
    "karpenter": _karpenter,
    "draconfig": _draconfig,
    "capi": _capi,
}


class _Plain(yaml.SafeDumper):
    """Repeats equal parts, which PyYAML would write as aliases."""

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True
