"""The members of a job: its pods with NPUs, and these NPUs as the claims tell them (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any, Final

from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.agent.devices.npu_status import DieStatus, NpuStatus
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.ascend.offers import OfferKind
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.api.objects import (
    AllocationResult,
    DeviceStatus,
    NetworkDeviceData,
    ResourceClaim,
)
from trio_npu_dra.kit.api.parsing import NotUnderstood, convert
from trio_npu_dra.kit.api.pods import PlacedPod
from trio_npu_dra.kit.api.workloads import (
    JOB_INDEX,
    JOBSET_ATTEMPT,
    JOBSET_JOB_INDEX,
    LWS_GROUP_INDEX,
    LWS_WORKER_INDEX,
    STATEFULSET_INDEX,
)
from trio_npu_dra.kit.base.errors import DriverError

Address = IPv4Address | IPv6Address
_Held = tuple[AllocationResult, DeviceStatus]

_FEW: Final = 8
"""How many absent pods are named: a job may want two billion."""
_HOST_NAME_LIMIT: Final = 63
_INDEXES: Final = (
    (JOBSET_JOB_INDEX, JOB_INDEX),
    (LWS_GROUP_INDEX, LWS_WORKER_INDEX),
    (JOB_INDEX,),
    (STATEFULSET_INDEX,),
)
"""The labels that have a pod's place in its job; pods may have those of several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Npu:
    """One rank: an NPU, or one die of a module.

    Attributes:
        physical_id: N of `/dev/davinciN` on the host.
        super_pod: That of its node; None if it is in none.
        addresses: Of its RoCE port.
        sdid: Its address in the super pod.
        levels: Its `level_list` of a 950.
    """

    family: ChipFamily
    physical_id: int
    super_pod: int | None
    addresses: tuple[Address, ...] = ()
    sdid: int | None = None
    levels: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod of the job that has NPUs.

    Attributes:
        pod: Its name.
        names: By which it may know itself: its own and its host name.
        address: Of the pod.
        host_address: Of its node.
        npus: By physical id, at least one.
        troubles: What the claims say of NPUs that are not ready.
    """

    pod: str
    names: frozenset[str]
    node: str
    address: str
    host_address: str
    npus: tuple[Npu, ...]
    troubles: tuple[str, ...] = ()

    @property
    def super_pod(self) -> int | None:
        """The super pod of its node; None if it is in none."""
        return self.npus[0].super_pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A job's members if nothing is lacking; else what is, a line for each pod."""

    members: tuple[Member, ...]
    lacks: tuple[str, ...]


class _Lacking(Exception):
    """What a pod lacks, as the end of a sentence."""


def live(pods: Iterable[PlacedPod]) -> tuple[PlacedPod, ...]:
    """The pods that neither end nor have ended, by place in the job.

    After a restart of a JobSet these are the pods of the newest attempt, because for a moment some
    of the attempt before do not end yet.
    """
    found = [
        pod for pod in pods if pod.metadata.deletion_timestamp is None and not pod.status.has_ended
    ]
    newest = max((_attempt(pod) for pod in found), default=0)
    found = [pod for pod in found if _attempt(pod) == newest]
    has_places = all(map(index_of, found))
    return tuple(
        sorted(found, key=lambda pod: (index_of(pod) if has_places else (), _natural(pod)))
    )


def gather(
    pods: Sequence[PlacedPod], claims: Mapping[str, ResourceClaim], count: int | None
) -> Gathered:
    """The members among live pods.

    Args:
        pods: As `live` gives them.
        claims: Those of the namespace, by name.
        count: How many pods the job has; None: those that are there.

    Raises:
        DriverError: A pod has what HCCL cannot use.
    """
    held: list[tuple[PlacedPod, Sequence[_Held]]] = []
    lacks = list(_missing(pods, count))
    for pod in pods:
        try:
            held.append((pod, _held(pod, claims)))
        except _Lacking as lack:
            lacks.append(f"pod {pod.metadata.name} {lack}")
    if not lacks and not any(devices for _, devices in held):
        lacks.append(f"no pod of the job has a claim for a device of {DRIVER}")
    # Statuses are read last: to read those of a large job at each change would take seconds.
    members = () if lacks else tuple(_member(pod, devices) for pod, devices in held if devices)
    _refuse_shared(members)
    return Gathered(members=members, lacks=tuple(lacks))


def _refuse_shared(members: Iterable[Member]) -> None:
    owners: dict[tuple[str, int], str] = {}
    for member in members:
        for npu in member.npus:
            key = member.node, npu.physical_id
            if key in owners:
                raise DriverError(
                    f"NPU {npu.physical_id} of node {member.node} is there twice, for pods "
                    f"{owners[key]} and {member.pod}: give each pod of a job a claim of its own, "
                    "by resourceClaimTemplateName"
                )
            owners[key] = member.pod


def portless(members: Sequence[Member]) -> str:
    """Why HCCL cannot join the nodes of a job; empty if it can."""
    families = {npu.family for member in members for npu in member.npus}
    none = sorted(one for one in families if not TRAITS[one].has_network_port)
    if not none or len({member.node for member in members}) == 1:
        return ""
    return (
        f"NPUs of {', '.join(none)} have no network port: HCCL joins them within one node, and the "
        "job is on several; place its pods on one node"
    )


def names_of(pod: PlacedPod) -> frozenset[str]:
    """By which the pod may know itself: its name, and its host name."""
    host_name = (pod.spec.hostname or pod.metadata.name)[:_HOST_NAME_LIMIT].rstrip("-.")
    return frozenset({pod.metadata.name, host_name})


def index_of(pod: PlacedPod) -> tuple[int, ...]:
    """The pod's place in its job; empty if no label has it."""
    for names in _INDEXES:
        values = [pod.metadata.labels.get(name, "") for name in names]
        if all(map(str.isdigit, values)):
            return tuple(map(int, values))
    return ()


def _attempt(pod: PlacedPod) -> int:
    text = pod.metadata.labels.get(JOBSET_ATTEMPT, "")
    return int(text) if text.isdigit() else 0


def _natural(pod: PlacedPod) -> list[Any]:
    """Orders names by the numbers in them: `train-10` comes after `train-9`."""
    parts = re.split(r"(\d+)", pod.metadata.name)  # each second one is a number
    return [int(part) if at % 2 else part for at, part in enumerate(parts)]


def _missing(pods: Sequence[PlacedPod], count: int | None) -> Iterator[str]:
    if count is None or len(pods) == count:
        return
    there = f"{len(pods)} of {count} pods are there"
    places = [index_of(pod) for pod in pods]
    if all(places) and len({place[:-1] for place in places}) == 1:
        known = {place[-1] for place in places if place[-1] < count}
        first = islice((str(at) for at in range(count) if at not in known), _FEW)
        if absent := ", ".join(first):
            more = count - len(known) - _FEW
            there += f"; those with index {absent}{f' and {more} more' * (more > 0)} are not"
    yield there


def _held(pod: PlacedPod, claims: Mapping[str, ResourceClaim]) -> Sequence[_Held]:
    """The devices of the pod, each with its status; empty for a pod without NPUs.

    Raises:
        _Lacking: It does not have all yet.
    """
    if pod.spec.node_name is None:
        raise _Lacking("has no node yet")
    held = [
        (given, _status_of(given, claim, pod.spec.node_name))
        for claim in _claims_of(pod, claims)
        for given in _given(claim)
    ]
    if held and not (pod.status.pod_ip and pod.status.host_ip):
        raise _Lacking("has no address yet")
    return held


def _member(pod: PlacedPod, held: Sequence[_Held]) -> Member:
    """A pod that lacks nothing.

    Raises:
        DriverError: It has what HCCL cannot use.
    """
    where = f"pod {pod.metadata.name}"
    npus = [npu for given, status in held for npu in _npus(where, given, status)]
    return Member(
        pod=pod.metadata.name,
        names=names_of(pod),
        node=pod.spec.node_name or "",
        address=pod.status.pod_ip or "",
        host_address=pod.status.host_ip or "",
        npus=tuple(sorted(npus, key=lambda npu: npu.physical_id)),
        troubles=tuple(
            f"{given.device} of {where} is not {one.type}: {one.message or one.reason}"
            for given, status in held
            for one in status.conditions
            if one.status != "True"
        ),
    )


def _claims_of(pod: PlacedPod, claims: Mapping[str, ResourceClaim]) -> Iterator[ResourceClaim]:
    names = dict(pod.claim_names)
    if extended := pod.status.extended_resource_claim_status:
        names["of extended resources"] = extended.resource_claim_name
    for name, called in {name: called for called, name in names.items()}.items():  # each once
        if name is None:
            raise _Lacking(f"lacks claim {called}, which is not made of its template yet")
        claim = claims.get(name)
        if claim is None:
            raise _Lacking(f"lacks claim {name}, which does not exist or cannot be read")
        if not pod.may_use(claim.status):
            raise _Lacking(f"lacks claim {name}, which is not reserved for it")
        yield claim


def _given(claim: ResourceClaim) -> Iterator[AllocationResult]:
    """The devices that the claim holds; with admin access it only looks on."""
    allocation = claim.status.allocation
    if allocation is None:
        raise _Lacking(f"lacks devices in claim {claim.metadata.name}, which is not allocated")
    for given in allocation.devices.results:
        if given.driver == DRIVER and not given.admin_access:
            yield given


def _status_of(given: AllocationResult, claim: ResourceClaim, node: str) -> DeviceStatus:
    key = given.driver, given.pool, given.device, given.share_id
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device, status.share_id) == key and status.data:
            return status
    raise _Lacking(
        f"lacks what the driver on node {node} says of {given.device} in claim "
        f"{claim.metadata.name}"
    )


def _npu_status(what: str, given: AllocationResult, status: DeviceStatus) -> NpuStatus:
    try:
        found = convert(NpuStatus, status.data)
    except NotUnderstood as error:
        raise DriverError(
            f"the status of {what} is not understood: {error}: is the driver on its node of "
            "another version?"
        ) from None
    if given.share_id is not None:
        raise DriverError(f"{what} is a share of an NPU: HCCL works on whole NPUs alone")
    if found.type is OfferKind.VNPU:
        raise DriverError(f"{what} is a vNPU: HCCL works on whole NPUs alone")
    return found


def _npus(where: str, given: AllocationResult, status: DeviceStatus) -> Iterator[Npu]:
    what = f"{given.device} of {where}"
    facts = _npu_status(what, given, status)
    whole = DieStatus(
        physical_id=facts.physical_id, sdid=facts.sdid, network_data=status.network_data
    )
    for die in facts.module_dies or (whole,):
        yield Npu(
            family=facts.model,
            physical_id=die.physical_id,
            super_pod=facts.super_pod_id,
            addresses=_addresses(what, die.network_data),
            sdid=die.sdid,
            levels=facts.levels,
        )


def _addresses(what: str, data: NetworkDeviceData | None) -> tuple[Address, ...]:
    try:
        return tuple(ip_address(text.partition("/")[0]) for text in data.ips) if data else ()
    except ValueError as error:
        raise DriverError(f"the status of {what} is not understood: {error}") from None
