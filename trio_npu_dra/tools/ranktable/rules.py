"""What HCCL refuses in a rank table, found before any process reads it (pure).

The rules are those of HCCL's loader (hcomm: topoinfo_ranktableConcise.cc and config.cc for 1.0 and
1.2; rank_table_info.cc, new_rank_info.cc and rank_level_info.cc for 2.0), for what our tables can
have, and of its documents where these ask for more (docs/reference/ranktable.md marks them).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from trio_npu_dra.ascend.traits import RankTableTraits
from trio_npu_dra.tools.ranktable.order import interleaved, repeated

Wire = dict[str, Any]

SERVER_ID_LIMIT: Final = 64
_NO_SDID: Final = 0xFFFFFFFF
_EID: Final = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why HCCL does not take a table; *rank* is the one that it is about, if it is about one."""

    text: str
    rank: int | None = None


def refusals(table: Wire, traits: RankTableTraits) -> list[Refusal]:
    """All that HCCL refuses in a table for NPUs of one family."""
    is_by_rank = table.get("version") == "2.0"
    try:
        if is_by_rank:
            return list(_in_rank_table(_RankTable.model_validate(table), traits))
        return list(_in_server_table(_ServerTable.model_validate(table), traits))
    except ValidationError as error:
        return [_of_shape(one["loc"], one["msg"]) for one in error.errors()]


def advice(table: Wire) -> Iterator[str]:
    """What HCCL takes, and its documents advise against."""
    servers = {one["server_id"]: one["device"] for one in table.get("server_list", ())}
    pods = {one["super_pod_id"]: one["server_list"] for one in table.get("super_pod_list", ())}
    if counts := _unequal(servers):
        yield f"servers have unequal numbers of NPUs, which is slow: {counts}"
    if counts := _unequal(pods):
        yield f"super pods have unequal numbers of servers, which is slow: {counts}"


def needs_addresses(*, servers: int, super_pods: int) -> bool:
    """Whether a table needs the NPUs' addresses, with so many parts; 0 super pods in form 1.0."""
    return (super_pods or servers) > 1


def _of_shape(where: tuple[str | int, ...], why: str) -> Refusal:
    rank = where[1] if len(where) > 1 and where[0] == "rank_list" else None
    return Refusal(f"{'.'.join(map(str, where))}: {why}", rank if isinstance(rank, int) else None)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, defer_build=True)


# --- 1.0 and 1.2 ----------------------------------------------------------------------------------

_Number = Annotated[str, Field(pattern="^[0-9]+$")]


def _is_address(text: str) -> str:
    ip_address(text)
    return text


_Address = Annotated[str, AfterValidator(_is_address)]


class _Device(_Part):
    device_id: _Number
    rank_id: _Number
    device_ip: _Address | None = None
    super_device_id: _Number | None = None


class _Server(_Part):
    server_id: str = Field(min_length=1, max_length=SERVER_ID_LIMIT)
    host_ip: _Address | None = None
    device: list[_Device] = Field(min_length=1)


class _ServerName(_Part):
    server_id: str


class _SuperPod(_Part):
    super_pod_id: str = Field(min_length=1)
    server_list: list[_ServerName]


class _ServerTable(_Part):
    status: Literal["completed"]
    version: Literal["1.0", "1.2"]
    server_count: str | None = None
    server_list: list[_Server] = Field(min_length=1)
    super_pod_list: list[_SuperPod] = Field(default_factory=list)


def _in_server_table(table: _ServerTable, traits: RankTableTraits) -> Iterator[Refusal]:
    servers = table.server_list
    devices = [(server.server_id, device) for server in servers for device in server.device]
    if table.server_count not in {None, str(len(servers))}:
        yield Refusal(f"server_count is {table.server_count}, and there are {len(servers)}")
    for name in repeated(server.server_id for server in servers):
        yield Refusal(f"server_id {name} is there twice")
    counts = _unequal({server.server_id: server.device for server in servers})
    if traits.equal_servers and counts:
        yield Refusal(f"servers have unequal numbers of NPUs: {counts}")
    yield from _not_from_0(int(device.rank_id) for _, device in devices)
    by_rank = sorted(devices, key=lambda one: int(one[1].rank_id))
    for name in interleaved(server for server, _ in by_rank):
        yield Refusal(f"the ranks of server {name} do not follow each other")
    for at, (_, device) in enumerate(devices):
        if int(device.device_id) >= traits.ids:
            yield Refusal(f"device_id is {device.device_id}, and must be below {traits.ids}", at)
    for at in _again((name, int(device.device_id)) for name, device in devices):
        yield Refusal(f"device_id is twice on server {devices[at][0]}", at)
    yield from _in_addresses(table, [device for _, device in devices])
    if table.version == "1.2":
        yield from _in_super_pods(table, devices)


def _in_addresses(table: _ServerTable, devices: list[_Device]) -> Iterator[Refusal]:
    parts = "super pods" if table.super_pod_list else "servers"
    if needs_addresses(servers=len(table.server_list), super_pods=len(table.super_pod_list)):
        for at, device in enumerate(devices):
            if device.device_ip is None:
                yield Refusal(
                    f"device_ip is missing: over several {parts} HCCL needs the address of each "
                    "NPU, all of one family; hccn_tool sets it",
                    at,
                )
    given = {at: one.device_ip for at, one in enumerate(devices) if one.device_ip is not None}
    for place in _again(given.values()):
        at, address = list(given.items())[place]
        yield Refusal(f"device_ip {address} is that of another NPU of the job, too", at)
    if len({ip_address(one).version for one in given.values()}) > 1:
        yield Refusal("device_ip: NPUs have addresses of both families")
    hosts = [server.host_ip for server in table.server_list if server.host_ip is not None]
    if len({ip_address(one).version for one in hosts}) > 1:
        yield Refusal("host_ip: servers have addresses of both families")
    if hosts and len(given) < len(devices):
        yield Refusal("host_ip without device_ip: HCCL would use the hosts' network alone")


def _in_super_pods(table: _ServerTable, devices: list[tuple[str, _Device]]) -> Iterator[Refusal]:
    pods = table.super_pod_list
    for name in repeated(pod.super_pod_id for pod in pods):
        yield Refusal(f"super_pod_id {name} is there twice")
    listed = Counter(server.server_id for pod in pods for server in pod.server_list)
    if listed != Counter(server.server_id for server in table.server_list):
        yield Refusal("super_pod_list does not have each server of server_list once")
        return
    pod_of = {server.server_id: pod.super_pod_id for pod in pods for server in pod.server_list}
    for name in interleaved(pod_of[server.server_id] for server in table.server_list):
        yield Refusal(f"the servers of super pod {name} do not follow each other")
    for at, (_, device) in enumerate(devices):
        if device.super_device_id is None or int(device.super_device_id) >= _NO_SDID:
            yield Refusal(f"super_device_id is {device.super_device_id}, which is none", at)
    for at in _again((pod_of[name], device.super_device_id) for name, device in devices):
        yield Refusal(f"super_device_id is twice in super pod {pod_of[devices[at][0]]}", at)


# --- 2.0 ------------------------------------------------------------------------------------------


class _RankAddress(_Part):
    addr_type: Literal["EID", "IPV4", "IPV6"]
    addr: str = Field(max_length=256)
    ports: list[Annotated[str, Field(min_length=1, max_length=32)]] = Field(
        min_length=1, max_length=16
    )
    plane_id: str = Field("0", max_length=1024)
    backup_addr: list[str] = Field(default_factory=list, max_length=16)

    @model_validator(mode="after")
    def _fits(self) -> _RankAddress:
        for addr in (self.addr, *self.backup_addr):
            is_eid = _EID.fullmatch(addr) is not None
            if self.addr_type != ("EID" if is_eid else f"IPV{ip_address(addr).version}"):
                raise ValueError(f"{addr} is no {self.addr_type}")
        if self.backup_addr and self.addr_type == "EID":
            raise ValueError("an EID can have no backup_addr")
        return self


class _Level(_Part):
    net_layer: int = Field(ge=0, le=7)
    net_instance_id: str = Field(min_length=1, max_length=1024)
    net_type: Literal["CLOS", "TOPO_FILE_DESC", "1DMESH", "2DMESH", "A3_SERVER", "A2_AX_SERVER"] = (
        "CLOS"
    )
    net_attr: str = ""
    pcie_fallback: bool = False
    rank_addr_list: list[_RankAddress] = Field(max_length=24)


class _Rank(_Part):
    rank_id: int
    local_id: int = Field(ge=0, lt=64)  # 64 is that of a spare, which no job is given
    device_id: int = Field(ge=0)
    level_list: list[_Level] = Field(min_length=1, max_length=8)


class _RankTable(_Part):
    status: Literal["completed"]
    version: Literal["2.0"]
    rank_count: int
    rank_list: list[_Rank] = Field(min_length=1, max_length=65536)


def _in_rank_table(table: _RankTable, traits: RankTableTraits) -> Iterator[Refusal]:
    ranks = table.rank_list
    if table.rank_count != len(ranks):
        yield Refusal(f"rank_count is {table.rank_count}, and there are {len(ranks)}")
    yield from _not_from_0(rank.rank_id for rank in ranks)
    sizes: dict[tuple[int, str], int] = {}
    for at, rank in enumerate(ranks):
        if rank.device_id >= traits.ids:
            yield Refusal(f"device_id is {rank.device_id}, and must be below {traits.ids}", at)
        layers = [level.net_layer for level in rank.level_list]
        if layers != sorted(set(layers)):
            yield Refusal(f"level_list: net_layer does not grow: {layers}", at)
        for level in rank.level_list:
            key = level.net_layer, level.net_instance_id
            count = len(level.rank_addr_list)
            if sizes.setdefault(key, count) != count:
                yield Refusal(
                    f"level_list: net_layer {key[0]} of {key[1]} has {count} addresses, and "
                    f"{sizes[key]} at an NPU before",
                    at,
                )


# --- both -----------------------------------------------------------------------------------------


def _not_from_0(ranks: Iterable[int]) -> Iterator[Refusal]:
    if (found := sorted(ranks)) != [*range(len(found))]:
        yield Refusal(f"rank_id: not each number from 0 to {len(found) - 1} is there once")


def _again(keys: Iterable[Hashable]) -> Iterator[int]:
    """The places of keys that have come before."""
    seen: set[Hashable] = set()
    for place, key in enumerate(keys):
        if key in seen:
            yield place
        seen.add(key)


def _unequal(parts: Mapping[str, Any]) -> str:
    """The sizes of parts in words; empty if they are equal."""
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) < 2:
        return ""
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
