"""Records of newer versions on a node on which this version starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, ref
from tests.claims.restarted import errors_in, prepare, start, unprepare
from tests.claims.test_metadata import METADATA
from trio_npu_dra.agent.claims.repair import keep_cdi_files


def change(node: NodeOnDisk, **changes: Any) -> None:
    """Have claim a's record say something else."""
    path = node.records_folder / "uid-a.json"
    path.write_text(json.dumps(node.record("uid-a") | changes))


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
@pytest.mark.parametrize(
    "changes",
    [
        {"version": 3},
        {"metadata": {"npu": 1}},
        {
            "metadata": {
                "npu": {"metadata": {"name": "a", "generation": "1"}, "requests": [{"devices": []}]}
            }
        },
        {"allocation": [{"by": "pool"}]},
        {"devices": [{"device": "npu-2", "family": "Ascend910B", "deviceNodes": {}}]},
    ],
)
async def test_a_record_of_a_newer_version_costs_no_other_claim(
    two_claims: NodeOnDisk,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    changes: dict[str, Any],
    verb: str,
) -> None:
    """It is set aside, its CDI file guards its NPU, and its own claim's calls still end well."""
    del autojump_clock
    given = two_claims.cdi_path("uid-a").read_bytes()
    change(two_claims, **changes)

    await nursery.start(
        keep_cdi_files, two_claims.ledger(), two_claims.cdi(), (), two_claims.board, METADATA
    )
    await trio.sleep(60)

    assert two_claims.cdi_path("uid-a").read_bytes() == given
    assert await prepare(two_claims, "b") == {"b": ""}
    assert "may be in use by the claim with UID uid-a" in (await prepare(two_claims, "c"))["c"]
    if verb == "prepare":
        assert await prepare(two_claims, "a") == {"a": ""}
        assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    else:
        assert await unprepare(two_claims, "a") == {"a": ""}
        assert await prepare(two_claims, "c") == {"c": ""}


async def test_a_record_of_0_1_0_is_used(
    two_claims: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of its devices says again what its allocation says."""
    (device,) = two_claims.record("uid-a")["devices"]
    change(
        two_claims, devices=[device | {"requests": ["npu"], "pool": "node-1", "adminAccess": False}]
    )

    await start(two_claims, nursery)

    assert errors_in(caplog) == []
    assert await prepare(two_claims, "a") == {"a": ""}
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert await unprepare(two_claims, "a") == {"a": ""}
    assert await prepare(two_claims, "c") == {"c": ""}


async def test_a_claim_with_steps_of_a_newer_version_is_answered_and_not_unprepared(
    two_claims: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """This version cannot undo these steps: one clear error, and the NPU stays held."""
    change(two_claims, steps=["make-vnpu", "set-flag"])
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
