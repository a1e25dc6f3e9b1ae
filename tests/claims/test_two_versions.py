"""Two versions of the driver hold the same CDI files to the same records."""

from dataclasses import replace

import trio
from trio.testing import MockClock

from tests.claims.node import NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.cdi import Libraries
from trio_npu_dra.agent.claims.repair import keep_cdi_files


async def test_two_versions_do_not_rewrite_each_others_files(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The one that starts writes what it thinks is right, once; nobody compares after that."""
    del autojump_clock
    older, younger = (
        replace(node.cdi(), libraries=Libraries(path=path)) for path in ("/old", "/new")
    )
    node.source.store(claim("a", result("npu-2")))
    await node.start(cdi=older).prepare([ref("a")])
    await nursery.start(keep_cdi_files, node.ledger(), older)
    await nursery.start(keep_cdi_files, node.ledger(), younger)
    written = node.cdi_path("uid-a").stat()

    await trio.sleep(60)

    assert b"/new" in node.cdi_path("uid-a").read_bytes()
    assert node.cdi_path("uid-a").stat().st_ino == written.st_ino
