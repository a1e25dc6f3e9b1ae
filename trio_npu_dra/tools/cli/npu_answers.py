"""What each command of `kubectl npu` reads, and what it makes of that."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from trio_npu_dra.ascend import fact_names
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.model import Board, Chip, ChipFamily
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import FullNode, ObjectMeta
from trio_npu_dra.kit.api.workloads import JOB_NAME, JOBSET_NAME, LWS_NAME
from trio_npu_dra.kit.base.errors import ConfigError, DriverError, Invalid, NotFound
from trio_npu_dra.tools import kubectl
from trio_npu_dra.tools.cli import npu_wire, npu_words
from trio_npu_dra.tools.cli.table import Line
from trio_npu_dra.tools.cli.topology import Topology, matrix
from trio_npu_dra.tools.cluster.cel.selector import apart
from trio_npu_dra.tools.cluster.explain.answer import explain_claim, explain_pod
from trio_npu_dra.tools.cluster.explain.job import explain_job
from trio_npu_dra.tools.cluster.fleet import DeviceRow, NodeRow, diagnosis, find, fleet
from trio_npu_dra.tools.cluster.gather import (
    events_about,
    namespaces_of,
    read_cluster,
    read_devices,
)
from trio_npu_dra.tools.cluster.objects import Claim, Pod
from trio_npu_dra.tools.cluster.said import Said

Output = tuple[Iterable[Line], dict[str, Any]]
"""Lines for people, and the facts as data."""
_KINDS: Final[Mapping[str, type[Pod | Claim]]] = {"pod": Pod, "claim": Claim}
"""What can be explained."""
_JOBS: Final[Mapping[str, tuple[str, str]]] = {
    "job": ("Job", JOB_NAME),
    "jobset": ("JobSet", JOBSET_NAME),
    "lws": ("LeaderWorkerSet", LWS_NAME),
}
"""Jobs that can be: their kinds, and the label that has their name on their pods."""


async def answer(client: KubeClient, asked: argparse.Namespace) -> Output:
    """What the command line asks for."""
    match asked.command:
        case "node":
            return await _node(client, asked.name, asked.driver)
        case "explain":
            return await _explain(client, asked)
        case "why-unhealthy":
            return await _why_unhealthy(client, asked.name, asked.driver)
    return await _overview(client, asked.driver, is_wide=asked.output == "wide")


async def _fleet(client: KubeClient, driver: str) -> tuple[tuple[NodeRow, ...], tuple[Said, ...]]:
    """The nodes, and what could not be read."""
    view, _ = await read_devices(client)
    return fleet(view, driver), view.doubts


async def _overview(client: KubeClient, driver: str, *, is_wide: bool) -> Output:
    """The cluster by node; wide has a row for each device."""
    nodes, doubts = await _fleet(client, driver)
    lines = [npu_words.summary(nodes, driver)]
    if nodes:
        rows = npu_words.device_lines(nodes) if is_wide else npu_words.fleet_lines(nodes)
        lines += ["", *rows]
    return (*lines, *npu_words.doubt_lines(doubts)), npu_wire.fleet_wire(nodes, doubts)


async def _node(client: KubeClient, name: str, driver: str) -> Output:
    """One node.

    Raises:
        NotFound: It has no devices.
    """
    rows, doubts = await _fleet(client, driver)
    nodes = [row for row in rows if row.node == name]
    if not nodes:
        raise NotFound(f"node {name} has no devices of {driver or 'any driver'}")
    lines: list[Line] = [*npu_words.device_lines(nodes)]
    chips = sorted(_chips(nodes[0].whole), key=lambda chip: chip.physical_id)
    if chips:
        board = Board(chips=tuple(chips))
        topology = Topology(node=name, board=board, cpus={}, holds=None)
        lines = [*matrix(topology), "", *lines]
    return (*lines, *npu_words.doubt_lines(doubts)), npu_wire.fleet_wire(nodes, doubts)


def _chips(rows: Iterable[DeviceRow]) -> Iterator[Chip]:
    """The devices that are one chip, as the matrix needs them.

    A module of two dies has no physical id. Links between single NPUs are not published.
    """
    families = {str(family): family for family in ChipFamily}
    for row in rows:
        attributes = row.device.attributes
        numbers = {name: found.int_ for name, found in attributes.items() if found.int_ is not None}
        words = {name: found.string for name, found in attributes.items() if found.string}
        family = families.get(words.get(fact_names.MODEL, ""))
        if family is None or fact_names.PHYSICAL_ID not in numbers:
            continue
        physical_id = numbers[fact_names.PHYSICAL_ID]
        yield Chip(
            ref=ChipRef(physical_id),
            physical_id=physical_id,
            logic_id=numbers.get(fact_names.LOGIC_ID, physical_id),
            card_id=numbers.get(fact_names.CARD_ID, physical_id),
            device_id=numbers.get(fact_names.DEVICE_ID, 0),
            family=family,
            chip_name=words.get(fact_names.CHIP_NAME, ""),
            numa_node=numbers.get(fact_names.NUMA_NODE),
            topology_group=words.get(fact_names.TOPOLOGY_GROUP),
            module=words.get(fact_names.MODULE),
            super_pod_id=numbers.get(fact_names.SUPER_POD_ID),
            super_pod_server_index=numbers.get(fact_names.SUPER_POD_SERVER_INDEX),
        )


async def _explain(client: KubeClient, asked: argparse.Namespace) -> Output:
    """Of a bare name first the pod, then the claim.

    Raises:
        ConfigError: Another kind of object is meant, or nothing can have such a name.
        DriverError: Several namespaces have one.
        NotFound: There is neither.
    """
    kind, _, name = asked.name.rpartition("/")
    if kind in _JOBS:
        if asked.all_namespaces:
            raise ConfigError(f"{asked.name}: say with --namespace where it is")
        where = await kubectl.namespace_of(asked)
        return await _explain_job(client, kind, name, where, asked.driver)
    kinds = [kind.removesuffix("s")] if kind else list(_KINDS)
    if not _KINDS.keys() >= set(kinds):
        raise ConfigError(
            f"{asked.name}: only pod/, claim/, job/, jobset/ and lws/NAME can be explained"
        )
    usual = None if asked.all_namespaces else await kubectl.namespace_of(asked)
    for one in kinds:
        namespace = usual or await _only_namespace(client, one, name)
        try:
            if namespace is not None:
                return await _explain_one(client, one, name, namespace)
        except NotFound:
            continue
        except Invalid as error:  # nothing can have such a name
            raise ConfigError(str(error)) from error
    words = " and no ".join(kinds)
    where = f"namespace {usual}" if usual else "any namespace"
    raise NotFound(f"there is no {words} {name} in {where}")


async def _only_namespace(client: KubeClient, kind: str, name: str) -> str | None:
    """The one namespace with a `pod` or `claim` of that name; `None` if there is none.

    Raises:
        DriverError: Several have one.
    """
    found = await namespaces_of(client, _KINDS[kind], name)
    if len(found) > 1:
        raise DriverError(
            f"{len(found)} namespaces have a {kind} {name}; say which with --namespace: "
            f"{', '.join(sorted(found))}"
        )
    return found[0] if found else None


async def _explain_one(client: KubeClient, kind: str, name: str, namespace: str) -> Output:
    """Why a `pod` or `claim` waits.

    Raises:
        NotFound: There is none of that name.
    """
    about: Pod | Claim = await client.get(_KINDS[kind], name, namespace)
    with apart() as decide:
        view = await read_cluster(client, about.kind_name, about.metadata)
        if isinstance(about, Pod):
            said = explain_pod(about, view, decide)
        else:
            said = explain_claim(about, view, decide)
    return npu_words.explanation_lines(said), npu_wire.explanation_wire(said, about)


async def _explain_job(
    client: KubeClient, kind: str, name: str, namespace: str, driver: str
) -> Output:
    """Whether the pods of a job fit into one super pod.

    Raises:
        DriverError: Pods may not be read.
        NotFound: It has none.
    """
    kind_name, label = _JOBS[kind]
    about = ObjectMeta(name=name, namespace=namespace)
    with apart() as decide:
        view = await read_cluster(client, kind_name, about)
        if view.pods is None:
            raise DriverError(f"you may not list pods: what {kind} {name} asks for is not known")
        pods = [
            pod
            for pod in view.pods
            if pod.metadata.namespace == namespace
            and pod.metadata.labels.get(label) == name
            and pod.metadata.deletion_timestamp is None
        ]
        if not pods:
            raise NotFound(f"{kind} {name} in namespace {namespace} has no pod that runs or waits")
        said = explain_job(pods, view, decide, driver=driver)
    subject = {"kind": kind_name, "namespace": namespace, "name": name}
    lines = npu_words.job_lines(f"{kind} {namespace}/{name}", said)
    return lines, npu_wire.job_wire(said, subject)


async def _why_unhealthy(client: KubeClient, device: str, driver: str) -> Output:
    """What is wrong with a device.

    Raises:
        NoSuchDevice: No device, or more than one, has that name.
    """
    nodes, unread = await _fleet(client, driver)
    name, row = find(nodes, device)
    doubts = list(unread)
    events = await events_about(client, FullNode.kind_name, ObjectMeta(name=name), doubts)
    unhealthy = diagnosis(name, row, events, tuple(doubts))
    return npu_words.diagnosis_lines(unhealthy), npu_wire.diagnosis_wire(unhealthy)
