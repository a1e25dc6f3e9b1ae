"""Calls about the port that a chip has to the network, over RoCE."""

from __future__ import annotations

import ctypes
from ipaddress import ip_address, ip_interface
from typing import Final

from trio_npu_dra.ascend.dcmi import _functions as f
from trio_npu_dra.ascend.dcmi import _signatures as c
from trio_npu_dra.ascend.dcmi._answers import spacious
from trio_npu_dra.ascend.dcmi._base import Calls
from trio_npu_dra.ascend.dcmi._codes import NO_CONFIGURATION
from trio_npu_dra.ascend.dcmi.errors import DcmiError, IdUnknown
from trio_npu_dra.ascend.dcmi.types import ChipRef, IpAddress, IpInterface, is_blank

_ROCE_PORT: Final = 1, 0  # kind of port, and its number
_TYPES: Final = {4: 0, 6: 1}  # by IP version
_MAC_BYTES: Final = 6


class RocePortCalls(Calls):
    """See `Dcmi`."""

    def network_health(self, chip: ChipRef) -> int:
        """0 or 6 (being set up): the chip's RoCE port is fine. Can block long on a dropped card."""
        return self._one_of(range(9), f.NETWORK_HEALTH, chip)

    def address(self, chip: ChipRef, version: int) -> IpInterface | None:
        """The address of a chip's RoCE port, with its network; None if it has none.

        *version* is that of IP. Of IPv6 the library gives the length of the prefix in place of a
        mask, and no link-local address (Huawei's driver).
        """
        ip, mask = _asked(version), _asked(version)
        try:
            self._call(f.ADDRESS, chip, *_ROCE_PORT, ctypes.byref(ip), ctypes.byref(mask))
        except DcmiError as error:
            if error.code == NO_CONFIGURATION:
                return None
            raise
        network = _address(mask, 4) if version == 4 else mask.u_addr[0]
        try:
            found = ip_interface(f"{_address(ip, version)}/{network}")
        except ValueError as error:
            raise DcmiError(0, self._name(f.ADDRESS), f"no network mask: {error}") from error
        return found if is_reachable(found) else None

    def gateway(self, chip: ChipRef, version: int) -> IpAddress | None:
        """The gateway of a chip's RoCE port; None if it has none."""
        gateway = _asked(version)
        try:
            self._call(f.GATEWAY, chip, *_ROCE_PORT, ctypes.byref(gateway))
        except IdUnknown:  # so the library puts it (Huawei's driver)
            return None
        found = _address(gateway, version)
        return None if is_blank(*found.packed, ones=0xFF) else found

    def mac_address(self, chip: ChipRef) -> str | None:
        """The MAC address of a chip's RoCE port, such as `02:00:00:00:00:01`."""
        buffer = ctypes.create_string_buffer(_MAC_BYTES)
        self._call(f.MAC_ADDRESS, chip, 0, buffer, _MAC_BYTES)
        return None if is_blank(*buffer.raw, ones=0xFF) else buffer.raw.hex(":")


def is_reachable(address: IpInterface) -> bool:
    """Whether peers can reach it: 0.0.0.0 stands for no address, and so does fe80::."""
    is_of_link = address.version == 6 and address.is_link_local
    return not (is_blank(*address.ip.packed, ones=0xFF) or is_of_link)


def _asked(version: int) -> c.dcmi_ip_addr:
    """Room for an address of this IP version, for which the library looks at its type."""
    room = spacious(c.dcmi_ip_addr)
    room.ip_type = _TYPES[version]
    return room


def _address(given: c.dcmi_ip_addr, version: int) -> IpAddress:
    return ip_address(bytes(given.u_addr[: 4 if version == 4 else 16]))
