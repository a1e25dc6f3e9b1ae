"""The Ascend driver of this node, if it has one."""

from __future__ import annotations

import logging

from trio_npu_dra.errors import LibraryMissing
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.host import Host

log = logging.getLogger(__name__)


def load_driver(host: Host) -> Dcmi | None:
    """Load the driver's library; `None` on a node without Ascend hardware.

    Raises:
        LibraryMissing: The node has the hardware and no library; it says where it was looked for.
    """
    try:
        return Dcmi.load(host.host_root)
    except LibraryMissing:
        if host.is_ascend_present():
            raise
        log.info("no Ascend NPU and no Ascend driver on this node")
        return None
