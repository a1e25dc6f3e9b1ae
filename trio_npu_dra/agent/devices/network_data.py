"""The addresses of a chip as the API has them: in a claim's status, in device metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_npu_dra.ascend.model import Chip
from trio_npu_dra.kit.api.objects import NetworkDeviceData


def network_data(chip: Chip) -> NetworkDeviceData | None:
    """The addresses of a whole chip; None if it has none, or they are not known.

    Without the name of an interface: that would be one of the pod's, and the port is in the chip.
    """
    if chip.network is None:
        return None
    ips = tuple(str(address) for address in chip.network.addresses)
    return NetworkDeviceData(ips=ips, hardware_address=chip.network.mac)


def network_on_the_wire(chip: Chip) -> Mapping[str, Any] | None:
    """The same as the API has it."""
    data = network_data(chip)
    return None if data is None else data.to_wire()
