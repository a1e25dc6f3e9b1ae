"""Records of versions before 0.1.0 and of newer versions on a node on which this version starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, board, claim, ref, result
from tests.claims.restarted import errors_in, prepare, start, unprepare
from tests.holds.released import ReleasedRecord
from tests.synced import syncs
from trio_npu_dra.ascend.model import EMPTY_BOARD

SINCE = ("kind", "state", "allocation", "chips", "steps", "edits")
"""Fields that the first format does not have."""


def make_released(node: NodeOnDisk, name: str) -> Path:
    """Give a claim a record of the first format."""
    path = node.records_folder / f"uid-{name}.json"
    known = {key: value for key, value in node.record(f"uid-{name}").items() if key not in SINCE}
    path.write_bytes(ReleasedRecord.model_validate(known | {"version": 1}).to_json())
    return path


async def test_a_record_of_the_first_format_is_rewritten_once_at_a_start(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its file is right already; the pod notices nothing, and its NPU stays its own."""
    del autojump_clock
    path = make_released(two_claims, "a")
    cdi = two_claims.cdi_path("uid-a").stat().st_ino

    await start(two_claims, nursery)
    wire, inode = two_claims.record("uid-a"), path.stat().st_ino
    await trio.sleep(12)

    assert (wire["version"], wire["state"]) == (2, "ready")
    assert wire["edits"] == json.loads(two_claims.cdi_path("uid-a").read_bytes())
    assert path.stat().st_ino == inode
    assert two_claims.cdi_path("uid-a").stat().st_ino == cdi
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert await prepare(two_claims, "a") == {"a": ""}
    assert await unprepare(two_claims, "a") == {"a": ""}


async def test_a_claim_with_two_kinds_of_access_keeps_its_npu_at_every_moment(
    node: NodeOnDisk,
) -> None:
    """The first format has one kind only; a pod may run with what is recorded otherwise."""
    node.source.store(
        claim("a", result("npu-2", "look", admin_access=True), result("npu-2", "use"))
    )
    assert await prepare(node, "a") == {"a": ""}
    make_released(node, "a")

    with syncs(node.root) as states:
        assert await prepare(node, "a") == {"a": ""}

    assert len(states) == 1
    assert node.cdi_path("uid-a").name in states[0]
    assert [given["adminAccess"] for given in node.record("uid-a")["allocation"]] == [True, False]


async def test_a_record_that_an_old_version_writes_beside_us_is_taken_over(
    two_claims: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """In a rolling update the kubelet may still call the older instance."""
    del autojump_clock
    await start(two_claims, nursery)
    make_released(two_claims, "a")
    assert await prepare(two_claims, "b") == {"b": ""}
    (two_claims.state_folder / "serialize.lock").write_bytes(b"another mark")

    await trio.sleep(6)

    assert two_claims.record("uid-a")["state"] == "ready"


@pytest.mark.parametrize("is_started", [False, True])
async def test_a_record_of_the_first_format_is_completed_by_a_prepare(
    two_claims: NodeOnDisk, nursery: trio.Nursery, is_started: bool
) -> None:
    """With its chips, which the first format lacks; while they cannot be asked, without."""
    make_released(two_claims, "a")
    if is_started:
        await start(two_claims, nursery)
        two_claims.board.set(EMPTY_BOARD)
        assert await prepare(two_claims, "a") == {"a": ""}
        assert two_claims.record("uid-a")["chips"] == {"npu-2": []}
        two_claims.board.set(board())

    assert await prepare(two_claims, "a") == {"a": ""}

    assert two_claims.record("uid-a")["chips"]["npu-2"][0]["physicalId"] == 2
    async with (ledger := two_claims.ledger()).exclusive():
        assert {chip.physical_id for chip in ledger.remembered_chips()} == {2, 3}


def make_newer(node: NodeOnDisk, **changes: Any) -> None:
    """Have claim a's record be of a newer version, for chips that this one does not know."""
    path = node.records_folder / "uid-a.json"
    wire = node.record("uid-a") | {"version": 3} | changes
    wire["devices"][0]["family"] = "Ascend960"
    path.write_text(json.dumps(wire))


async def test_a_claim_with_chips_of_a_newer_version_is_answered_guarded_and_repaired(
    two_claims: NodeOnDisk,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the edits of its record, which are written back as they are."""
    del autojump_clock
    right = two_claims.cdi_path("uid-a").read_bytes()
    make_newer(two_claims, shareFlag=True)
    two_claims.cdi_path("uid-a").unlink()

    await start(two_claims, nursery)

    assert errors_in(caplog) == []
    assert two_claims.cdi_path("uid-a").read_bytes() == right
    assert await prepare(two_claims, "a") == {"a": ""}
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert two_claims.record("uid-a")["shareFlag"] is True
    assert await unprepare(two_claims, "a") == {"a": ""}


async def test_a_claim_with_steps_of_a_newer_version_is_answered_and_not_unprepared(
    two_claims: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """What was done cannot be undone here: one clear error, and the NPU stays held."""
    make_newer(two_claims, steps=["make-vnpu", "set-flag"])
    words = (
        "a newer version of the driver has prepared the claim with make-vnpu, set-flag, which this "
        "version cannot take back: install the newer version again"
    )

    await start(two_claims, nursery)
    assert errors_in(caplog) == []
    assert await prepare(two_claims, "a") == {"a": ""}
    assert await unprepare(two_claims, "a", "b") == {"a": words, "b": ""}

    assert (two_claims.record_uids(), two_claims.cdi_uids()) == ({"uid-a"}, {"uid-a"})
    assert two_claims.record("uid-a")["state"] == "ready"
    claims = two_claims.start(patience=AT_ONCE)
    assert "held by" in (await claims.prepare([ref("c")]))["uid-c"].error
