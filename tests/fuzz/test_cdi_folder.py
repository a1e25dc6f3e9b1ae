"""Any content of the node's CDI folder, where other drivers write too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.entries import Entries, Kind, clear, entries, found, lay_out
from dev.rig.waiting import HANG_SECONDS
from tests.claims.node import AT_ONCE, DRIVER, NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.repair import Repair

OURS: Final = f"{DRIVER}-npu_"
NAMES: Final = (
    *(f"{OURS}uid-a.json", f"{OURS}uid-b.json", f"{OURS}gone.json", f"{OURS}.json", OURS),
    *(f".{OURS}uid-a.json.0a1b2c3d", f".{OURS}", f"{OURS}uid-a.json.swp", f"{OURS}uid-a.yaml"),
    *("other.com-gpu.json", "other.yaml", ".other.json.abc", "folder", f"x{OURS}uid-a.json"),
)


@pytest.fixture(scope="module")
def node(place: Path) -> NodeOnDisk:
    """A node on which claims a and b may be prepared."""
    node = NodeOnDisk(place / "node")
    node.source.store(claim("a", result("npu-5")), claim("b", result("npu-6")))
    return node


@given(there=entries(NAMES, st.binary(max_size=20)))
@example(there={f"{OURS}gone.json": (Kind.FOLDER, b"")})
@example(there={f".{OURS}x": (Kind.FULL_FOLDER, b"")})
def test_any_entries_leave_our_files_right_and_others_alone(
    node: NodeOnDisk, there: Entries
) -> None:
    """Files without our names are not touched, and every claim gets its file."""
    shutil.rmtree(node.state_folder, ignore_errors=True)
    clear(node.cdi_root)
    trio.run(_repair, node, there)


async def _repair(node: NodeOnDisk, there: Entries) -> None:
    with trio.fail_after(HANG_SECONDS):
        refs = [ref("a"), ref("b")]
        await node.start(patience=AT_ONCE).prepare(refs)
        right = {uid: node.cdi_path(uid).read_bytes() for uid in ("uid-a", "uid-b")}
        lay_out(node.cdi_root, there)
        before = _foreign(node)
        for is_first in (True, False):
            await Repair(node.ledger(), node.cdi()).reconcile(is_first=is_first)
            assert _foreign(node) == before
            for uid, content in right.items():
                path = node.cdi_path(uid)
                kind, _ = there.get(path.name, (None, b""))
                if kind not in {Kind.FOLDER, Kind.FULL_FOLDER}:  # only people remove folders
                    assert path.is_file()
                    assert path.read_bytes() == content
        assert set(await node.start(patience=AT_ONCE).unprepare(refs)) == {"uid-a", "uid-b"}
        assert _foreign(node) == before


def _foreign(node: NodeOnDisk) -> dict[str, tuple[int, bytes]]:
    """The entries that are not ours."""
    return {
        name: entry
        for name, entry in found(node.cdi_root).items()
        if not name.removeprefix(".").startswith(OURS)
    }
