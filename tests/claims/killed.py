"""A driver process that is killed between two steps: `python -m tests.claims.killed ROOT STEP`.

The steps are ports of the product with a kill in them, not switches in it.
"""

import os
import signal
import sys
from pathlib import Path

import trio

from tests.claims.node import NodeOnDisk, claim, ref, result
from trio_npu_dra.claims.cdi import CdiFolder
from trio_npu_dra.claims.record import ClaimRecord
from trio_npu_dra.claims.records import Records


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DiesBeforeCdiFile(CdiFolder):
    """The record is written, the CDI file is not."""

    def write(self, record: ClaimRecord) -> bool:
        """Never returns."""
        _die()
        return super().write(record)


class DiesBeforeRecordIsGone(Records):
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
            root=given.root, driver_name=given.driver_name, host=given.host, library_path="/lib"
        )
        await node.start(cdi=cdi).prepare([ref("a")])
    else:
        records = DiesBeforeRecordIsGone(node.state_folder, boot_id_file=node.boot_id_file)
        claims = node.start(records=records)
        await claims.prepare([ref("a")])
        await claims.unprepare([ref("a")])


if __name__ == "__main__":
    trio.run(_run, NodeOnDisk(Path(sys.argv[1])), sys.argv[2])
