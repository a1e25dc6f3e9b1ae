"""The addresses of a chip as the API has them: in a claim's status, in device metadata."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from trio_npu_dra.ascend.model import Chip, ChipNetwork
from trio_npu_dra.kit.api.objects import NetworkDeviceData


def network_data(chip: Chip) -> NetworkDeviceData | None:
    """The addresses of a whole chip; None if it has none, or they are not known.

    Without the name of an interface: that would be one of the pod's, and the port is in the chip.
    """
    return None if chip.network is None else _data(chip.network)


def network_on_the_wire(chip: Chip) -> Mapping[str, Any] | None:
    """The same as the API has it."""
    return None if chip.network is None else _wire(chip.network)


def _data(network: ChipNetwork) -> NetworkDeviceData:
    ips = tuple(str(address) for address in network.addresses)
    return NetworkDeviceData(ips=ips, hardware_address=network.mac)


@lru_cache(maxsize=64)  # each prepare needs it, and it changes rarely
def _wire(network: ChipNetwork) -> Mapping[str, Any]:
    return _data(network).to_wire()
