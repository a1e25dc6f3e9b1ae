"""A driver process that is killed between two steps: `python -m tests.claims.killed ROOT STEP`.

The steps are ports of the product with a kill in them, not switches in it.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from tests.claims.node import NodeOnDisk, claim, ref, result
from trio_npu_dra.claims.cdi import CdiFolder, Libraries
from trio_npu_dra.holds.ledger import Ledger


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeCdiFile(CdiFolder):
    """The record is written, the CDI file is not."""

    def write(self, uid: str, spec: Mapping[str, Any]) -> bool:
        """Never returns."""
        _die()
        return super().write(uid, spec)


class DiesBeforeRecordIsGone(Ledger):
    """The CDI file is removed, the record is not."""

    def remove(self, uid: str) -> None:
        """Never returns."""
        _die()
        super().remove(uid)


async def _run(node: NodeOnDisk, step: str) -> None:
    node.source.store(claim("a", result("npu-2")))
    if step == "prepare":
        given = node.cdi()
        cdi = DiesBeforeCdiFile(
            root=given.root,
            driver_name=given.driver_name,
            host=given.host,
            libraries=Libraries(path="/lib"),
        )
        await node.start(cdi=cdi).prepare([ref("a")])
    else:
        ledger = DiesBeforeRecordIsGone(node.state_folder, boot_id_file=node.boot_id_file)
        claims = node.start(ledger=ledger)
        await claims.prepare([ref("a")])
        await claims.unprepare([ref("a")])


if __name__ == "__main__":
    trio.run(_run, NodeOnDisk(Path(sys.argv[1])), sys.argv[2])
