"""The Ascend driver of this node, if it has one."""

from __future__ import annotations

import logging

from trio_npu_dra.errors import LibraryMissing
from trio_npu_dra.npu.dcmi.calls import Told, nobody
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.host import Host

log = logging.getLogger(__name__)


def load_driver(host: Host, told: Told = nobody) -> Dcmi | None:
    """Load the driver's library; `None` on a node without Ascend hardware.

    Args:
        host: Whether it has the hardware, and where the library is.
        told: Called after each call into it that returned, on the calling thread.

    Raises:
        LibraryMissing: The node has the hardware and no library; it says where it was looked for.
    """
    try:
        return Dcmi.load(host.host_root, told)
    except LibraryMissing:
        if host.is_ascend_present():
            raise
        log.info("no Ascend NPU and no Ascend driver on this node")
        return None
