"""Read the addresses of one chip's RoCE port."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError, NotSupported
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.hccn_conf import HCCN_CONF, read_hccn_conf
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.model import Chip, ChipNetwork
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import StorageError

log = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 2.0

HURRIED_SECONDS: Final = 0.25
"""The deadline in a listing while calls hang: a start waits for all ports, and all may hang."""


async def read_addresses(
    worker: DcmiWorker,
    dcmi: Dcmi,
    host: Host,
    chip: Chip,
    *,
    deadline_seconds: float = DEADLINE_SECONDS,
) -> ChipNetwork | None:
    """The addresses of a chip's RoCE port; they stay as they are known if it does not answer.

    Its IPv4 address, or its IPv6 address if it has no other, as Huawei's device plugin has it.
    Where the library has no call for an address, that of `/etc/hccn.conf` counts. A port that hangs
    is in the way of its own calls alone.
    """
    if not TRAITS[chip.family].has_network_port:
        return None
    try:
        return await worker.call(
            _network,
            dcmi,
            host,
            chip,
            device=("network", chip.ref),
            deadline_seconds=deadline_seconds,
        )
    except DcmiError as error:
        log.debug("addresses not read", extra={"npu": chip.name, "error": str(error)})
        return chip.network


def _network(dcmi: Dcmi, host: Host, chip: Chip) -> ChipNetwork | None:
    try:
        address = dcmi.address(chip.ref, 4) or dcmi.address(chip.ref, 6)
    except NotSupported as error:
        return _written(host, chip, why=str(error))
    if address is None:
        return None
    network = ChipNetwork(addresses=(address,))
    with suppress(DcmiError):  # then it is not known, and the address is
        network = replace(network, mac=dcmi.mac_address(chip.ref))
    with suppress(DcmiError):
        network = replace(network, gateway=dcmi.gateway(chip.ref, address.version))
    return network


def _written(host: Host, chip: Chip, *, why: str) -> ChipNetwork | None:
    """What the file says of a chip's port."""
    try:
        network = read_hccn_conf(host).get(chip.physical_id)
    except StorageError as error:
        log.debug("file not read", extra={"path": HCCN_CONF, "error": str(error)})
        return None
    if network is not None:
        _say_source(why)
    return network


@cache
def _say_source(why: str) -> None:
    """Log once that the addresses are those of a file: ports may have others."""
    log.warning("addresses of NPUs are taken from a file", extra={"path": HCCN_CONF, "why": why})
