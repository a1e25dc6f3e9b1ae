"""The Ascend driver of this node: whether it has one, and whether that was replaced."""

from __future__ import annotations

import logging
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import LibraryMissing
from trio_npu_dra.ascend.dcmi.types import OnCall, ignore_call
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.kit.base import disk

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 5.0


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


async def wait_replaced(dcmi: Dcmi) -> None:
    """Return when other files have taken the place of the library's, and rest for a moment.

    Only a new process can load them: the loader takes a library of a known name for the known one.
    """
    before = None
    while (found := await disk.run(dcmi.replacement)) is None or found != before:
        before = found
        await trio.sleep(_LOOK_SECONDS)
    log.warning(
        "the Ascend driver's library was replaced: stopping, to start with the new one",
        extra={"library": dcmi.library_path},
    )
