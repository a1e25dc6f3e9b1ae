"""Records that a reboot has outdated or that cannot be read: which NPUs they still hold."""

import json
from pathlib import Path

import pytest

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in, prepare, unprepare

# --- reboot --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacks_it", ["record", "node"])
async def test_without_a_boot_id_a_record_stays(two_claims: NodeOnDisk, lacks_it: str) -> None:
    """Its pod may run: /proc is not what it should be, or was not when it was written."""
    if lacks_it == "node":
        two_claims.boot_id_file.unlink()
    else:
        path = two_claims.records_folder / "uid-a.json"
        path.write_text(json.dumps(two_claims.record("uid-a") | {"bootId": ""}))
        two_claims.reboot()

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert "uid-a" in two_claims.record_uids()


@pytest.mark.parametrize("content", ["", "{", '{"version": 3, "claim": {"uid": "uid-a"}}'])
async def test_a_record_of_an_earlier_boot_that_cannot_be_read_is_forgotten_too(
    two_claims: NodeOnDisk, content: str
) -> None:
    """Its claim may be gone, and the kubelet may have forgotten it."""
    spoil(two_claims, content)
    assert "may be in use" in (await prepare(two_claims, "c"))["c"]
    two_claims.reboot()

    assert await prepare(two_claims, "c") == {"c": ""}
    assert [path.name for path in two_claims.records_folder.iterdir()] == ["uid-c.json"]


async def test_an_unreadable_record_that_may_be_of_this_boot_stays(
    two_claims: NodeOnDisk,
) -> None:
    """Somebody has written since, or it is not known when."""
    two_claims.reboot()
    assert await prepare(two_claims, "a") == {"a": ""}
    spoil(two_claims)
    lock = two_claims.state_folder / "serialize.lock"
    for mark in (lock.read_text(), "0123456789abcdef", "0123456789abcdef" + lock.read_text()[16:]):
        lock.write_text(mark)
        assert "may be in use" in (await prepare(two_claims, "c"))["c"]
    two_claims.boot_id_file.unlink()
    assert "may be in use" in (await prepare(two_claims, "c"))["c"]


# --- records that cannot be read -----------------------------------------------------------------

NEWER = (
    '{"version": 3, "claim": {"uid": "uid-a"}, "npus": ["npu-2"]}',
    "version: 3 is of another version of the driver, this one knows 2",
)
BROKEN = ("\0" * 200, "the whole: Invalid JSON: expected value at line 1 column 1")


def spoil(node: NodeOnDisk, content: str = BROKEN[0]) -> Path:
    """Make a's record something else."""
    path = node.records_folder / "uid-a.json"
    path.write_text(content)
    return path


@pytest.mark.parametrize(("content", "problem"), [NEWER, BROKEN], ids=["newer", "broken"])
async def test_an_unreadable_record_is_set_aside_and_its_npu_stays_guarded(
    two_claims: NodeOnDisk, caplog: pytest.LogCaptureFixture, content: str, problem: str
) -> None:
    """Its pod may run. Others live on, and the record is kept as it is and named once."""
    path = spoil(two_claims, content)
    two_claims.source.store(claim("d", result("npu-5")))

    assert await prepare(two_claims, "b", "d", "c") == {
        "b": "",
        "d": "",
        "c": "device npu-2 may be in use by the claim with UID uid-a, whose record on the node "
        "cannot be read, until its pods have ended; if there are none, an administrator of the "
        f"node removes {two_claims.cdi_path('uid-a')}",
    }

    assert path.read_text() == content
    assert errors_in(caplog) == [problem]


@pytest.mark.parametrize("name", ["uid-a.json", "uid-a.json.aside"])
async def test_a_record_is_read_again_once_it_can_be(two_claims: NodeOnDisk, name: str) -> None:
    """After a downgrade and an upgrade; 0.1.0 renamed what it could not read."""
    path = two_claims.records_folder / "uid-a.json"
    right = path.read_text()
    path.unlink()
    (path.with_name(name)).write_text(BROKEN[0])
    assert "may be in use" in (await prepare(two_claims, "c"))["c"]
    assert await prepare(two_claims, "b") == {"b": ""}
    path.write_text(right)

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert two_claims.record_uids() == {"uid-a", "uid-b"}


async def test_what_an_older_version_renamed_is_not_taken_for_the_claims(
    two_claims: NodeOnDisk,
) -> None:
    """Once the claim was prepared again."""
    path = two_claims.records_folder / "uid-a.json.aside"
    path.write_text("older")
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert not path.exists()


async def test_an_admins_claim_sees_an_npu_whose_record_cannot_be_read(
    two_claims: NodeOnDisk,
) -> None:
    """It only looks on."""
    spoil(two_claims)
    two_claims.source.store(claim("watch", result("npu-2", admin_access=True)))

    assert await prepare(two_claims, "watch") == {"watch": ""}


async def test_a_record_that_the_disk_does_not_give_waits_in_its_place(
    rightless_node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another user, or on bad blocks: its NPU is guarded, and the next start reads it again."""
    node = rightless_node
    node.source.store(
        claim("a", result("npu-2")), claim("b", result("npu-3")), claim("c", result("npu-2"))
    )
    await prepare(node, "a", "b")
    path = node.records_folder / "uid-a.json"
    path.chmod(0)
    claims = node.start(patience=AT_ONCE)

    for _ in range(2):
        answers = await claims.prepare([ref("b"), ref("c")])
        assert answers["uid-b"].error == ""
        assert "device npu-2 may be in use by the claim with UID uid-a" in answers["uid-c"].error
    assert errors_in(caplog) == [f"cannot read {path}: Permission denied"]

    path.chmod(0o600)
    claims = node.start(patience=AT_ONCE)
    assert "held by claim default/a" in (await claims.prepare([ref("c")]))["uid-c"].error
    assert await claims.unprepare([ref("a")]) == {"uid-a": ""}
    assert (await claims.prepare([ref("c")]))["uid-c"].error == ""


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
async def test_a_record_that_the_disk_does_not_give_can_be_replaced_and_removed(
    rightless_node: NodeOnDisk, verb: str
) -> None:
    """By its own claim's calls."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    await prepare(node, "a")
    (node.records_folder / "uid-a.json").chmod(0)

    if verb == "prepare":
        assert await prepare(node, "a") == {"a": ""}
        assert node.record("uid-a")["claim"]["name"] == "a"
    else:
        assert await unprepare(node, "a") == {"a": ""}
        assert [*node.records_folder.iterdir(), *node.cdi_root.iterdir()] == []
