"""Disks, folders and clocks that fail cost claims as little as they can, and are reported."""

import os
import stat
from dataclasses import replace

import pytest
import trio

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in, prepare, start, unprepare
from tests.full_disk import no_file_beyond

# --- disks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "serialize.lock: File too large"),
        (100, "claims/uid-c.json: File too large"),
    ],
    ids=["lock", "record"],
)
async def test_a_full_disk_leaves_no_half_claim(
    two_claims: NodeOnDisk, size: int, words: str
) -> None:
    """Whichever write fails: it is named, prepared claims go on, and space makes it good."""
    two_claims.source.store(claim("c", result("npu-5")))

    with no_file_beyond(size):
        refused = await prepare(two_claims, "a", "c")
    assert refused["a"] == ""
    assert words in refused["c"]
    assert two_claims.cdi_uids() == {"uid-a", "uid-b"}
    assert two_claims.record_uids() == {"uid-a", "uid-b"}
    assert not two_claims.unfinished_files()

    assert await prepare(two_claims, "c") == {"c": ""}


async def test_an_unprepare_on_a_full_disk_is_whole_or_not_at_all(two_claims: NodeOnDisk) -> None:
    """The pod stays until it is done; the NPU is not free before."""
    with no_file_beyond(0):
        undone = await unprepare(two_claims, "a", "b")
    assert all("serialize.lock: File too large" in error for error in undone.values())
    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]

    assert await unprepare(two_claims, "a", "b") == {"a": "", "b": ""}
    assert two_claims.record_uids() == two_claims.cdi_uids() == set()


async def test_a_read_only_cdi_folder_is_named(
    rightless_node: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """To the pod's owner, and to the operator by the repair; the claim can still be ended."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    node.cdi_root.mkdir(mode=0o555)

    words = f"cannot write {node.cdi_path('uid-a')}: Permission denied"
    assert await prepare(node, "a") == {"a": words}
    await start(node, nursery)
    assert errors_in(caplog) == [f"default/a: {words}"]
    assert await unprepare(node, "a") == {"a": ""}


LONG = "a" * 130
"""Of a UID that fits into the name of a record, and not into that of a CDI file below."""


@pytest.mark.parametrize("verb", ["prepare", "unprepare"])
async def test_a_claim_whose_file_cannot_be_removed_keeps_its_npu_alone(
    two_claims: NodeOnDisk, verb: str
) -> None:
    """A container may start with it; the call's other claims get other NPUs, or end."""
    long_named = replace(two_claims.cdi(), driver_name="d" * 120)
    driver = two_claims.start(cdi=long_named, patience=AT_ONCE)
    two_claims.source.store(claim(LONG, result("npu-5")))
    await driver.prepare([ref(LONG)])

    if verb == "unprepare":
        errors = await driver.unprepare([ref(LONG), ref("b")])
        assert two_claims.record_uids() == {"uid-a", f"uid-{LONG}"}
    else:
        moved = (claim(LONG, result("npu-6")), claim("b", result("npu-7")))
        two_claims.source.store(*moved, claim("c", result("npu-5")))
        answers = await driver.prepare([ref(LONG), ref("b"), ref("c")])
        errors = {uid: answer.error for uid, answer in answers.items()}
        assert f"npu-5 is held by claim default/{LONG}" in errors["uid-c"]
        records = {uid: two_claims.record(uid) for uid in two_claims.record_uids()}
        held = {uid: record["devices"][0]["device"] for uid, record in records.items()}
        assert held == {"uid-a": "npu-2", "uid-b": "npu-7", f"uid-{LONG}": "npu-5"}
    assert "cannot remove" in errors[f"uid-{LONG}"]
    assert "File name too long" in errors[f"uid-{LONG}"]
    assert errors["uid-b"] == ""


@pytest.mark.parametrize("is_state_there", [False, True])
async def test_a_folder_that_cannot_be_made_is_named(
    rightless_node: NodeOnDisk, is_state_there: bool
) -> None:
    """Nothing is handed out without a record; and the host's /etc may be read-only."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    if is_state_there:
        node.state_folder.mkdir()
    node.root.chmod(0o555)

    missing = node.cdi_root if is_state_there else node.state_folder
    assert await prepare(node, "a") == {"a": f"cannot make {missing}: Permission denied"}
    assert node.cdi_uids() == set()
    node.root.chmod(0o755)


async def test_a_file_in_a_read_only_cdi_folder_keeps_its_claim(rightless_node: NodeOnDisk) -> None:
    """A container could still start with it: the NPU is not free."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    await prepare(node, "a")
    node.cdi_root.chmod(0o555)

    assert await unprepare(node, "a") == {
        "a": f"cannot remove {node.cdi_path('uid-a')}: Permission denied"
    }
    assert "held by claim default/a" in (await prepare(node, "b"))["b"]

    node.cdi_root.chmod(0o755)
    assert await unprepare(node, "a") == {"a": ""}
    assert await prepare(node, "b") == {"b": ""}


async def test_a_records_folder_that_cannot_be_read_is_named(rightless_node: NodeOnDisk) -> None:
    """The holds are unknown: no NPU is given, and none is taken back."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    await prepare(node, "a")
    node.records_folder.chmod(0)

    said = {"a": f"cannot make {node.records_folder}: Permission denied"}
    assert await prepare(node, "a") == said
    assert await unprepare(node, "a") == said
    node.records_folder.chmod(0o700)
    assert await unprepare(node, "a") == {"a": ""}


async def test_a_missing_plugins_directory_is_not_made(
    node: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the kubelet's, and where it is not mounted, records would be lost."""
    node.source.store(claim("a", result("npu-2")))
    node.state_folder = node.root / "plugins/npu.huawei.com"

    await start(node, nursery)
    refused = await prepare(node, "a")

    assert errors_in(caplog) == [f"cannot make {node.state_folder}: No such file or directory"]
    assert refused == {"a": f"cannot make {node.state_folder}: No such file or directory"}
    assert not (node.root / "plugins").exists()


# --- clocks and modes ----------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 2**33], ids=["1970", "2242"])
async def test_a_clock_that_jumps_changes_nothing(
    two_claims: NodeOnDisk, nursery: trio.Nursery, seconds: int
) -> None:
    """Files from the past or the future are as good as any."""
    files = [*two_claims.records_folder.iterdir(), *two_claims.cdi_root.iterdir()]
    for path in files:
        os.utime(path, (seconds, seconds))

    await start(two_claims, nursery)
    assert await prepare(two_claims, "a", "b") == {"a": "", "b": ""}

    assert [path.stat().st_mtime for path in files] == [seconds] * 4


@pytest.mark.parametrize("umask", [0, 0o022, 0o077], ids=oct)
async def test_files_are_for_root_but_the_runtimes(node: NodeOnDisk, umask: int) -> None:
    """Whatever the umask: records and lock for us alone, CDI files for every runtime."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    before = os.umask(umask)
    try:
        await prepare(node, "a", "b")
    finally:
        os.umask(before)

    state = node.state_folder
    paths = {
        state: 0o750,
        node.records_folder: 0o700,
        state / "serialize.lock": 0o600,
        node.records_folder / "uid-b.json": 0o600,
        node.cdi_path("uid-b"): 0o644,
    }
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == paths
