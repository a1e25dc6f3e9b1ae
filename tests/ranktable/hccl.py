"""HCCL's verdict on a rank table, written from its loader and documents, not from our rules.

Loader: hcomm's topoinfo_ranktableConcise.cc and config.cc (1.0, 1.2), rank_table_info.cc,
new_rank_info.cc, rank_level_info.cc and address_info.cc (2.0). Documents: rank_table_config_*.md of
hicann/hccl. It reads the text as a process of the job does, and ends at the first flaw.

That loader, of August 2026 and with stand-ins for the hardware, takes each table of test_tables. It
also takes an NPU twice on a server, ranks and super pods that are interleaved, and an A3 without
addresses, which the documents forbid; a rank without levels it misses later.
"""

from __future__ import annotations

import ipaddress
import json
import string
from itertools import pairwise
from typing import Any

from trio_npu_dra.ascend.model import ChipFamily

MAX_DEVICES = {
    ChipFamily.ASCEND_310P: 32,
    ChipFamily.ASCEND_910: 8,
    ChipFamily.ASCEND_910B: 16,
    ChipFamily.ASCEND_910_A3: 16,
}
CHECKED_FOR_EQUAL_SERVERS = (ChipFamily.ASCEND_310P, ChipFamily.ASCEND_910)


class Refused(Exception):
    """HCCL ends the job."""


def load(text: str, family: ChipFamily) -> None:
    """Load a rank table.

    Raises:
        Refused: Why it cannot be loaded.
    """
    table = json.loads(text)
    _demand(table.get("status") == "completed", "it would wait for status")
    if family is ChipFamily.ASCEND_950:
        _load_ranks(table)
    else:
        _load_servers(table, family)


def _demand(holds: bool, why: str) -> None:
    if not holds:
        raise Refused(why)


def _text(of: dict[str, Any], key: str) -> str:
    _demand(isinstance(of.get(key), str), f"{key} is no string")
    return str(of[key])


def _digits(of: dict[str, Any], key: str) -> int:
    text = _text(of, key)
    _demand(bool(text) and all(letter in string.digits for letter in text), f"{key} is no number")
    return int(text)


# --- 1.0 and 1.2 ----------------------------------------------------------------------------------


def _load_servers(table: dict[str, Any], family: ChipFamily) -> None:
    _demand(table.get("version") in ("1.0", "1.2"), "version")
    servers = table["server_list"]
    if "server_count" in table:
        _demand(_digits(table, "server_count") == len(servers), "server_count")
    _demand(len(servers) > 0, "no server")
    ids: list[str] = []
    ranks: list[tuple[int, str, dict[str, Any]]] = []
    addresses: list[Any] = []
    for server in servers:
        name = _text(server, "server_id")
        _demand(0 < len(name) <= 64, "length of server_id")
        _demand(name not in ids, "server_id twice")
        ids.append(name)
        host = ipaddress.ip_address(server["host_ip"]) if "host_ip" in server else None
        _demand(len(server["device"]) > 0, "no device")
        seen = set()
        for device in server["device"]:
            number = _digits(device, "device_id")
            _demand(number < MAX_DEVICES[family] and number not in seen, "device_id")
            seen.add(number)
            address = _address(device, addresses)
            _demand(host is None or address is not None, "the host's network would be used")
            if table["version"] == "1.0":
                _demand(len(servers) == 1 or address is not None, "no device_ip")
            ranks.append((_digits(device, "rank_id"), name, device))
    _demand(len({one.version for one in addresses}) <= 1, "families of device_ip")
    hosts = {ipaddress.ip_address(one["host_ip"]).version for one in servers if "host_ip" in one}
    _demand(len(hosts) <= 1, "families of host_ip")
    ranks.sort(key=lambda one: one[0])
    _demand([rank for rank, _, _ in ranks] == list(range(len(ranks))), "rank_id")
    _no_way_back([name for _, name, _ in ranks], "ranks of servers are interleaved")
    if family in CHECKED_FOR_EQUAL_SERVERS:
        _demand(len({len(server["device"]) for server in servers}) == 1, "unequal servers")
    if table["version"] == "1.2":
        _load_super_pods(table["super_pod_list"], ids, ranks)


def _address(device: dict[str, Any], known: list[Any]) -> Any:
    if "device_ip" not in device:
        return None
    try:
        address = ipaddress.ip_address(_text(device, "device_ip"))
    except ValueError as error:
        raise Refused(str(error)) from error
    _demand(address not in known, "device_ip twice")
    known.append(address)
    return address


def _load_super_pods(pods: list[Any], ids: list[str], ranks: list[Any]) -> None:
    pod_of: dict[str, str] = {}
    names = []
    for pod in pods:
        name = _text(pod, "super_pod_id")
        _demand(name != "" and name not in names, "super_pod_id")
        names.append(name)
        for server in pod["server_list"]:
            _demand(server["server_id"] in ids and server["server_id"] not in pod_of, "server_id")
            pod_of[server["server_id"]] = name
    _demand(len(pod_of) == len(ids), "a server in no super pod")
    _no_way_back([pod_of[name] for name in ids], "super pods are interleaved")
    sdids = set()
    for _, server, device in ranks:
        sdid = _digits(device, "super_device_id")
        _demand(sdid < 0xFFFFFFFF and (pod_of[server], sdid) not in sdids, "super_device_id")
        sdids.add((pod_of[server], sdid))
        _demand(len(pods) == 1 or "device_ip" in device, "no device_ip over super pods")


def _no_way_back(names: list[str], why: str) -> None:
    left = set()
    for before, now in pairwise(names):
        left |= {before} if before != now else set()
        _demand(now not in left, why)


# --- 2.0 ------------------------------------------------------------------------------------------


def _unsigned(of: dict[str, Any], key: str, most: int) -> int:
    value = of.get(key)
    _demand(type(value) is int and 0 <= value <= most, f"{key} {value!r}")
    assert isinstance(value, int)
    return value


def _load_ranks(table: dict[str, Any]) -> None:
    _demand(table.get("version") == "2.0", "version")
    ranks = table["rank_list"]
    _demand(_unsigned(table, "rank_count", 65536) == len(ranks) > 0, "rank_count")
    numbers = {_unsigned(rank, "rank_id", 65535) for rank in ranks}
    _demand(numbers == set(range(len(ranks))), "rank_id")
    for rank in ranks:
        _unsigned(rank, "local_id", 63)
        _unsigned(rank, "device_id", 64)
        _demand(0 < len(rank["level_list"]) <= 8, "level_list")  # taken over as they are
