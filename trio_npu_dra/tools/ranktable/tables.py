"""Rank tables in the forms 1.0, 1.2 and 2.0 (pure).

The forms are those of HCCL's documents (docs/zh/user_guide/cluster_info_config of hicann/hccl);
docs/reference/ranktable.md says of each field what it has here, and why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from itertools import groupby
from typing import Any, Final, Literal

from trio_npu_dra.agent.devices.npu_status import LEVELS_LIMIT
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import ConfigError, DriverError
from trio_npu_dra.tools.ranktable.members import Member, Npu

Wire = dict[str, Any]

_SERVER_ID_LIMIT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a job's table, and why it is this form."""

    version: Literal["1.0", "1.2", "2.0"]
    reason: str


@dataclass(frozen=True, slots=True)
class Rank:
    """An NPU with its pod; the number of the rank is its place in the job."""

    member: Member
    npu: Npu

    def __str__(self) -> str:
        """For messages."""
        return f"NPU {self.npu.physical_id} of pod {self.member.pod} on node {self.member.node}"


def together(members: Iterable[Member]) -> tuple[Member, ...]:
    """The members with the pods of a node, and the nodes of a super pod, following each other.

    Nothing else changes: a super pod and a node come where their first pod was.
    """
    members = tuple(members)
    pods = [member.super_pod for member in members]
    nodes = [member.node for member in members]
    return tuple(
        sorted(members, key=lambda one: (pods.index(one.super_pod), nodes.index(one.node)))
    )


def ranks_of(members: Iterable[Member]) -> tuple[Rank, ...]:
    """The ranks of members in their order."""
    return tuple(Rank(member, npu) for member in members for npu in member.npus)


def form_of(ranks: Sequence[Rank]) -> Form:
    """The form of a table with these ranks.

    Raises:
        DriverError: There is no such table.
    """
    families = {rank.npu.family: rank for rank in ranks}
    if len(families) > 1:
        which = ", ".join(f"{family} ({rank})" for family, rank in families.items())
        raise DriverError(f"HCCL does not join NPUs of several generations: {which}")
    (family,) = families
    newest = TRAITS[family].rank_table
    if newest is None:
        raise DriverError(f"there is no HCCL for {family}, so there is no rank table")
    if newest == "2.0":
        _need(
            ranks,
            lambda npu: bool(npu.levels),
            "has no levels, which form 2.0 needs: the status of a claim has those of its node's "
            f"/etc/hccl_rootinfo.json, if that is valid and they have {LEVELS_LIMIT >> 10} KiB at "
            "most",
        )
        return Form(version="2.0", reason=f"that of {family}")
    if newest == "1.0":
        return Form(version="1.0", reason=f"that of {family}")
    if all(rank.npu.super_pod is None for rank in ranks):
        return Form(version="1.0", reason=f"that of {family} outside of super pods")
    _need(
        ranks,
        lambda npu: npu.super_pod is not None and npu.sdid is not None,
        "lacks its super pod or SDID, which form 1.2 needs of each NPU; npu-smi info -t spod-info "
        "shows both",
    )
    return Form(version="1.2", reason=f"that of {family} in super pods")


def _need(ranks: Iterable[Rank], has: Callable[[Npu], bool], why: str) -> None:
    for rank in ranks:
        if not has(rank.npu):
            raise DriverError(f"{rank} {why}")


def make_table(ranks: Sequence[Rank], form: Form, *, block: int | None = None) -> Wire:
    """The table of a job.

    Args:
        ranks: With those of a node and of a super pod together.
        form: Theirs.
        block: Ranks of a logical super pod; None: super pods are the physical ones.

    Raises:
        ConfigError: Super pods cannot be cut into such blocks.
        DriverError: HCCL needs addresses of NPUs that have none.
    """
    if block is not None and form.version != "1.2":
        raise ConfigError(
            f"--super-pod-block={block}: is for form 1.2, and the job has form {form.version}, "
            f"{form.reason}"
        )
    if form.version == "2.0":
        return _by_rank(ranks)
    return _by_server(ranks, form, block)


def _by_rank(ranks: Sequence[Rank]) -> Wire:
    return {
        "status": "completed",
        "version": "2.0",
        "rank_count": len(ranks),
        "rank_list": [
            {
                "rank_id": at,
                "local_id": rank.npu.physical_id,
                "device_id": rank.npu.physical_id,
                "level_list": list(rank.npu.levels),
            }
            for at, rank in enumerate(ranks)
        ],
    }


def _by_server(ranks: Sequence[Rank], form: Form, block: int | None) -> Wire:
    servers = [
        {"server_id": server_id(node), "device": [_device(at, rank, form) for at, rank in found]}
        for node, found in groupby(enumerate(ranks), lambda one: one[1].member.node)
    ]
    table = {
        "status": "completed",
        "version": form.version,
        "server_count": str(len(servers)),
        "server_list": servers,
    }
    if form.version == "1.2":
        table["super_pod_list"] = list(_super_pods(ranks, block))
    _add_addresses(table, ranks)
    return table


def _device(at: int, rank: Rank, form: Form) -> Wire:
    device = {"device_id": str(rank.npu.physical_id), "rank_id": str(at)}
    if form.version == "1.2":
        device["super_device_id"] = str(rank.npu.sdid)
    return device


def server_id(node: str) -> str:
    """The id of a node's server: its name, or a digest of one that is too long."""
    return node if len(node) <= _SERVER_ID_LIMIT else hashlib.sha256(node.encode()).hexdigest()


def _super_pods(ranks: Sequence[Rank], block: int | None) -> Iterator[Wire]:
    for name, found in groupby(ranks, lambda rank: rank.npu.super_pod):
        nodes = [rank.member.node for rank in found]
        parts = [nodes[at : at + block] for at in range(0, len(nodes), block)] if block else [nodes]
        for number, part in enumerate(parts):
            if number and part[0] == parts[number - 1][-1]:
                raise ConfigError(
                    f"--super-pod-block={block}: node {part[0]} would be in two logical super "
                    "pods: choose a number of ranks at which a node ends"
                )
            yield {
                "super_pod_id": f"{name}-{number}" if block else str(name),
                "server_list": [{"server_id": server_id(node)} for node in dict.fromkeys(part)],
            }


def _add_addresses(table: Wire, ranks: Sequence[Rank]) -> None:
    """Give all devices addresses of one family; where HCCL needs none, all of them or none."""
    devices = [device for server in table["server_list"] for device in server["device"]]
    version = max(
        (4, 6), key=lambda version: sum(_address(rank, version) is not None for rank in ranks)
    )
    missing = [rank for rank in ranks if _address(rank, version) is None]
    if missing:
        parts = "super pods" if "super_pod_list" in table else "servers"
        if len(table.get("super_pod_list") or table["server_list"]) > 1:
            more = f" and {len(missing) - 1} more NPUs" if missing[1:] else ""
            raise DriverError(
                f"{missing[0]}{more}: device_ip is missing: over several {parts} HCCL needs the "
                f"IPv{version} address of each NPU; hccn_tool sets it"
            )
        return
    for device, rank in zip(devices, ranks, strict=True):
        device["device_ip"] = _address(rank, version)
    hosts = {server_id(rank.member.node): ip_address(rank.member.host_address) for rank in ranks}
    # HCCL has use for it on A3 alone, as an IPv4 address; without device_ip it would do harm.
    is_v4 = all(isinstance(address, IPv4Address) for address in hosts.values())
    if TRAITS[ranks[0].npu.family].rank_table == "1.2" and is_v4:
        for server in table["server_list"]:
            server["host_ip"] = str(hosts[server["server_id"]])


def _address(rank: Rank, version: int) -> str | None:
    return next((str(one) for one in rank.npu.addresses if one.version == version), None)
