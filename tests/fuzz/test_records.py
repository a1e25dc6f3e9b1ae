"""Any content of the folder of claim records when the daemon starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.entries import Entries, Kind, entries, lay_out
from dev.fuzz.values import documents
from dev.rig.waiting import HANG_SECONDS
from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.test_metadata import METADATA
from tests.holds.entries import entry
from trio_npu_dra.agent.claims.repair import Repair
from trio_npu_dra.agent.holds.encoding import encode, parse
from trio_npu_dra.agent.report.claim_status import device_statuses
from trio_npu_dra.kit.base.errors import RecordCorrupt

GOOD: Final[dict[str, Any]] = {
    "version": 2,
    "bootId": "",
    "claim": {"namespace": "default", "name": "x", "uid": "uid-x"},
    "devices": [
        {
            "device": "npu-2",
            "family": "Ascend910B",
            "deviceNodes": {"/dev/davinci2": "/dev/davinci2"},
        }
    ],
    "kind": "ResourceClaim",
    "state": "ready",
    "steps": [],
    "allocation": [{"requests": ["npu"], "pool": "node-1", "device": "npu-2"}],
    "chips": json.loads(encode(entry("uid-x", 2)))["chips"],
    "edits": {"cdiVersion": "0.5.0", "devices": [{"containerEdits": {"deviceNodes": []}}]},
    "metadata": {
        "npu": {
            "metadata": {"name": "x", "generation": 1},
            "requests": [{"name": "npu", "devices": [{"name": "npu-2", "attributes": {}}]}],
        }
    },
}
PARTS: Final[dict[str, Any]] = {
    "pieces": {"npu-2": {"template": "vir05_1c_8g", "vnpu": 100, "chipNode": "/dev/davinci2"}},
    "steps": ["vnpu"],
}
STATES: Final = [GOOD, GOOD | {"state": "undoing"}, GOOD | {"version": 3}, GOOD | PARTS]
ANY: Final = st.sampled_from(STATES).flatmap(documents)
NAMES: Final = (
    *("uid-x.json", "uid-x.json.aside", "uid-y.json.aside", "uid-y.json", "x.json", ".json"),
    *(".uid-x.json.0a1b2c3d", ".trash", "serialize.lock", ".json.aside", "..json", "\udcff.json"),
)


@pytest.fixture(scope="module")
def node(place: Path) -> NodeOnDisk:
    """A node on which claims a, b and c may be prepared."""
    node = NodeOnDisk(place / "node")
    node.source.store(*(claim(name, result(f"npu-{n}")) for n, name in enumerate("abc", start=5)))
    return node


@given(content=ANY)
def test_any_content_is_a_record_or_a_corrupt_one(content: bytes) -> None:
    """A record that was read can be written and reads the same; the error is one short line."""
    try:
        found = parse(content, uid="uid-x")
    except RecordCorrupt as error:
        words = str(error)
        assert len(words) < 1000 + 10 * len(content)
    else:
        assert found.uid == "uid-x"
        again = parse(encode(found), uid="uid-x")
        assert again.holds == found.holds
        assert encode(again) == encode(found)  # NaN in a free field is null from then on


@given(there=entries(NAMES, ANY))
@example(there={"uid-x.json": (Kind.FIFO, b"")})
@example(there={"\udcff.json": (Kind.FILE, b"")})
@example(there={".trash": (Kind.FULL_FOLDER, b"")})
def test_any_entries_cost_no_other_claim(node: NodeOnDisk, there: Entries) -> None:
    """Prepared claims stay prepared, and others can be prepared, also over restarts."""
    for folder in (node.state_folder, node.cdi_root):
        shutil.rmtree(folder, ignore_errors=True)
    trio.run(_live_with, node, there)


async def _live_with(node: NodeOnDisk, there: Entries) -> None:
    with trio.fail_after(HANG_SECONDS):
        assert await _prepare(node, "a") == ""
        lay_out(node.records_folder, there)
        for is_first in (True, False):
            ledger = node.ledger()
            await Repair(ledger, node.cdi(), (), node.board, METADATA).reconcile(is_first=is_first)
            for one in ledger.by_uid.values():
                device_statuses(one, node.board.value, driver_name="npu.huawei.com")
        assert "uid-a" in node.cdi_uids()
        assert await _prepare(node, "b") == ""
        assert await _prepare(node, "a") == ""
        driver = node.start(patience=AT_ONCE)
        assert await driver.unprepare([ref("a")]) == {"uid-a": ""}
        assert {"uid-b"} <= node.record_uids()
        assert "uid-b" in node.cdi_uids()
        assert await _prepare(node, "c") == ""


async def _prepare(node: NodeOnDisk, name: str) -> str:
    """Prepare a claim by a driver that has just started; returns the error."""
    answers = await node.start(patience=AT_ONCE).prepare([ref(name)])
    return answers[f"uid-{name}"].error
