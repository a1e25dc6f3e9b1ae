"""The Ascend driver of this node, if it has one."""

from __future__ import annotations

import logging

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import LibraryMissing
from trio_npu_dra.ascend.dcmi.types import OnCall, ignore_call
from trio_npu_dra.ascend.host import Host

log = logging.getLogger(__name__)


def load_library(host: Host, on_call: OnCall = ignore_call) -> Dcmi | None:
    """Load the Ascend driver's library; `None` on a node without Ascend hardware.

    Raises:
        LibraryMissing: The node has the hardware and no library; the message says which paths
            were tried.
    """
    try:
        return Dcmi.load(host.host_root, on_call)
    except LibraryMissing:
        if host.is_ascend_present():
            raise
        log.info("no Ascend NPU and no Ascend driver on this node")
        return None
