"""Records of newer versions on a node on which this version starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, ref
from tests.claims.restarted import errors_in, prepare, start, unprepare


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
    """This version cannot undo these steps: one clear error, and the NPU stays held."""
    make_newer(two_claims, steps=["make-vnpu", "set-flag"])
    words = (
        "a newer version of the driver has prepared the claim with make-vnpu, set-flag, which this "
        "version cannot undo: install the newer version again"
    )

    await start(two_claims, nursery)
    assert errors_in(caplog) == []
    assert await prepare(two_claims, "a") == {"a": ""}
    assert await unprepare(two_claims, "a", "b") == {"a": words, "b": ""}

    assert (two_claims.record_uids(), two_claims.cdi_uids()) == ({"uid-a"}, {"uid-a"})
    assert two_claims.record("uid-a")["state"] == "ready"
    claims = two_claims.start(patience=AT_ONCE)
    assert "held by" in (await claims.prepare([ref("c")]))["uid-c"].error
