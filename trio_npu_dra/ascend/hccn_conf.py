"""`/etc/hccn.conf`: the addresses that `hccn_tool` gave to RoCE ports, and gives them at a boot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_interface
from typing import Final

from trio_npu_dra.ascend.dcmi.roce_port import is_reachable
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.host_path import read_file
from trio_npu_dra.ascend.model import ChipNetwork
from trio_npu_dra.kit.base.storage import SIZE_LIMIT

HCCN_CONF: Final = "/etc/hccn.conf"
_ADDRESS: Final = re.compile(r"(IPv6)?address_(\d+)")  # netmask_ and gateway_ go with it


def read_hccn_conf(host: Host) -> Mapping[int, ChipNetwork]:
    """The networks by physical id.

    Raises:
        StorageError: The file cannot be read.
    """
    content = read_file(str(host.host_root), HCCN_CONF, limit=SIZE_LIMIT)
    return _parsed((content or b"").decode(errors="replace"))


def _parsed(text: str) -> dict[int, ChipNetwork]:
    """An IPv4 address counts before an IPv6 one, as for `dcmi_get_device_ip`."""
    values = {
        key: value for key, _, value in (line.strip().partition("=") for line in text.split())
    }
    networks: dict[int, ChipNetwork] = {}
    for key in sorted(values):  # the key of IPv4 comes later, and replaces IPv6
        if (named := _ADDRESS.fullmatch(key)) is None:
            continue
        family, number = named[1] or "", named[2]
        mask, gateway = (values.get(f"{family}{name}_{number}") for name in ("netmask", "gateway"))
        with suppress(ValueError):
            address = ip_interface(f"{values[key]}/{mask}")
            if is_reachable(address):
                networks[int(number)] = ChipNetwork(
                    addresses=(address,), gateway=ip_address(gateway) if gateway else None
                )
    return networks
