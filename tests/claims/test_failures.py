"""What breaks around claims costs as little as it can, and is said."""

import json
import logging
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from trio_npu_dra.claims.repair import keep_cdi_files


async def prepare(node: NodeOnDisk, *names: str) -> dict[str, str]:
    """Prepare claims by a driver that has just started; what went wrong, by name."""
    answers = await node.start(patience=AT_ONCE).prepare([ref(name) for name in names])
    return {name: answers[f"uid-{name}"].error for name in names}


async def unprepare(node: NodeOnDisk, *names: str) -> dict[str, str]:
    """The same for unprepare."""
    errors = await node.start(patience=AT_ONCE).unprepare([ref(name) for name in names])
    return {name: errors[f"uid-{name}"] for name in names}


async def start(node: NodeOnDisk, nursery: trio.Nursery) -> None:
    """Start the repair of a new instance."""
    await nursery.start(keep_cdi_files, node.records(), node.cdi())


@pytest.fixture
async def two_claims(node: NodeOnDisk) -> NodeOnDisk:
    """A node on which claims a and b hold NPUs 2 and 3, and c is allocated a's."""
    node.source.store(
        claim("a", result("npu-2")), claim("b", result("npu-3")), claim("c", result("npu-2"))
    )
    assert await prepare(node, "a", "b") == {"a": "", "b": ""}
    return node


def errors_in(log: pytest.LogCaptureFixture) -> list[str]:
    """Error lines and what they say is the problem."""
    return [vars(line)["problem"] for line in log.records if line.levelno == logging.ERROR]


# --- reboot --------------------------------------------------------------------------------------


async def test_a_claim_of_an_earlier_boot_keeps_no_npu_from_others(two_claims: NodeOnDisk) -> None:
    """Its pod was deleted while the node was down: nobody waits until the kubelet notices."""
    two_claims.reboot()

    assert await prepare(two_claims, "c") == {"c": ""}

    assert two_claims.record_uids() == {"uid-c"}
    assert "held by claim default/c" in (await prepare(two_claims, "a"))["a"]
    assert await unprepare(two_claims, "a", "b") == {"a": "", "b": ""}


@pytest.mark.parametrize("is_folder_emptied", [False, True])
async def test_a_pod_of_an_earlier_boot_runs_again(
    two_claims: NodeOnDisk, nursery: trio.Nursery, is_folder_emptied: bool
) -> None:
    """No file of the earlier boot is handed out; the kubelet's prepare makes them anew."""
    two_claims.reboot()
    if is_folder_emptied:
        shutil.rmtree(two_claims.cdi_root)

    await start(two_claims, nursery)
    assert (two_claims.record_uids(), two_claims.cdi_uids()) == (set(), set())

    assert await prepare(two_claims, "a", "b") == {"a": "", "b": ""}
    assert two_claims.record_uids() == two_claims.cdi_uids() == {"uid-a", "uid-b"}


async def test_a_record_from_before_boot_ids_stays(two_claims: NodeOnDisk) -> None:
    """Nobody can tell whether its pod runs."""
    path = two_claims.records_folder / "uid-a.json"
    path.write_text(json.dumps(two_claims.record("uid-a") | {"bootId": ""}))
    two_claims.reboot()

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert two_claims.record_uids() == {"uid-a"}


async def test_without_a_boot_id_every_record_stays(two_claims: NodeOnDisk) -> None:
    """As where /proc is not what it should be."""
    two_claims.boot_id_file.unlink()

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert two_claims.record_uids() == {"uid-a", "uid-b"}


# --- records that cannot be read -----------------------------------------------------------------

NEWER = (
    '{"version": 2, "claim": {"uid": "uid-a"}, "npus": ["npu-2"]}',
    "format 2 is of a newer driver, this one knows 1: claim.namespace: Field required",
)
BROKEN = ("\0" * 200, "the whole: Invalid JSON: expected value at line 1 column 1")


def spoil(node: NodeOnDisk, content: str = BROKEN[0]) -> Path:
    """Make a's record something else; where it will be set aside."""
    (node.records_folder / "uid-a.json").write_text(content)
    return node.records_folder / "uid-a.json.aside"


@pytest.mark.parametrize(("content", "problem"), [NEWER, BROKEN], ids=["newer", "broken"])
async def test_an_unreadable_record_is_set_aside_and_its_npu_stays_guarded(
    two_claims: NodeOnDisk, caplog: pytest.LogCaptureFixture, content: str, problem: str
) -> None:
    """Its pod may run. Others live on, and the record is kept as it is and shouted about once."""
    aside = spoil(two_claims, content)
    two_claims.source.store(claim("d", result("npu-5")))

    assert await prepare(two_claims, "b", "d", "c") == {
        "b": "",
        "d": "",
        "c": "device npu-2 may be in use by the claim with UID uid-a, whose record on the node "
        "cannot be read, until its pods have ended",
    }

    assert aside.read_text() == content
    assert "may be in use" in (await prepare(two_claims, "c"))["c"]
    assert errors_in(caplog) == [problem]


@pytest.mark.parametrize("content", [NEWER[0], BROKEN[0]], ids=["newer", "broken"])
async def test_unprepare_ends_an_unreadable_record(two_claims: NodeOnDisk, content: str) -> None:
    """Nothing of it is left, and its NPU is free."""
    spoil(two_claims, content)

    assert await unprepare(two_claims, "a", "b") == {"a": "", "b": ""}

    assert [*two_claims.records_folder.iterdir(), *two_claims.cdi_root.iterdir()] == []
    assert await prepare(two_claims, "c") == {"c": ""}


async def test_a_claim_with_an_unreadable_record_can_be_prepared_again(
    two_claims: NodeOnDisk,
) -> None:
    """Its own file does not stand in its way, and from then on it holds its NPU by name."""
    aside = spoil(two_claims)

    assert await prepare(two_claims, "a") == {"a": ""}

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]
    assert aside.exists()
    await unprepare(two_claims, "a", "b")
    assert [*two_claims.records_folder.iterdir(), *two_claims.cdi_root.iterdir()] == []


async def test_an_admins_claim_sees_an_npu_whose_record_cannot_be_read(
    two_claims: NodeOnDisk,
) -> None:
    """It only looks on."""
    spoil(two_claims)
    two_claims.source.store(claim("watch", result("npu-2", admin_access=True)))

    assert await prepare(two_claims, "watch") == {"watch": ""}


async def test_what_was_set_aside_is_read_again_by_who_can(
    two_claims: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """After a downgrade and an upgrade, or when a person has put it right."""
    right = (two_claims.records_folder / "uid-a.json").read_text()
    aside = spoil(two_claims)
    await prepare(two_claims, "b")
    aside.write_text(right)

    assert "held by claim default/a" in (await prepare(two_claims, "c"))["c"]

    assert not aside.exists()
    assert (two_claims.records_folder / "uid-a.json").read_text() == right
    assert "claim record can be read again" in caplog.messages


async def test_a_record_that_the_disk_does_not_give_waits_in_its_place(
    rightless_node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another user, or on bad blocks: its NPU is guarded, and it is read when it can be."""
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
    assert errors_in(caplog) == ["Permission denied"]

    path.chmod(0o600)
    assert "held by claim default/a" in (await claims.prepare([ref("c")]))["uid-c"].error
    assert await claims.unprepare([ref("a")]) == {"uid-a": ""}
    assert (await claims.prepare([ref("c")]))["uid-c"].error == ""


async def test_a_record_that_the_disk_gives_back_broken_is_set_aside(
    rightless_node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """And not asked for again: only a start looks aside."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")), claim("c", result("npu-2")))
    await prepare(node, "a")
    path = node.records_folder / "uid-a.json"
    right = path.read_text()
    claims = node.start(patience=AT_ONCE)
    path.chmod(0)
    await claims.prepare([ref("c")])
    path.chmod(0o600)
    aside = spoil(node)
    await claims.prepare([ref("c")])
    aside.write_text(right)

    assert "may be in use" in (await claims.prepare([ref("c")]))["uid-c"].error
    assert errors_in(caplog) == ["Permission denied", BROKEN[1]]
    assert "held by claim default/a" in (await prepare(node, "c"))["c"]


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


# --- disks ---------------------------------------------------------------------------------------


@contextmanager
def no_file_beyond(size: int) -> Iterator[None]:
    """Have the kernel refuse to write files beyond *size*: a full disk for who is no root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("size", "words", "is_held"),
    [
        (0, "cannot mark the lock file: File too large", False),
        (100, "claims/uid-c.json: File too large", False),
        (600, "cdi/npu.huawei.com-npu_uid-c.json: File too large", True),
    ],
    ids=["lock", "record", "CDI file"],
)
async def test_a_full_disk_leaves_no_half_claim(
    two_claims: NodeOnDisk, size: int, words: str, is_held: bool
) -> None:
    """Whichever write fails: it is named, prepared claims go on, and space makes it good."""
    two_claims.source.store(claim("c", result("npu-5")))

    with no_file_beyond(size):
        refused = await prepare(two_claims, "a", "c")
    assert refused["a"] == ""
    assert words in refused["c"]
    assert two_claims.cdi_uids() == {"uid-a", "uid-b"}
    assert two_claims.record_uids() == {"uid-a", "uid-b"} | ({"uid-c"} if is_held else set())
    assert not two_claims.unfinished_files()

    assert await prepare(two_claims, "c") == {"c": ""}


async def test_an_unprepare_on_a_full_disk_is_whole_or_not_at_all(two_claims: NodeOnDisk) -> None:
    """The pod stays until it is done; the NPU is not free before."""
    with no_file_beyond(0):
        undone = await unprepare(two_claims, "a", "b")
    assert set(undone.values()) == {"cannot mark the lock file: File too large"}
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


async def test_a_read_only_state_folder_is_named(rightless_node: NodeOnDisk) -> None:
    """Nothing is handed out that could not be remembered."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    (node.root / "state/claims").mkdir(parents=True)
    (node.root / "state/claims").chmod(0o555)

    refused = await prepare(node, "a")

    assert refused == {"a": f"cannot write {node.records_folder / 'uid-a.json'}: Permission denied"}
    assert node.cdi_uids() == set()


async def test_a_cdi_folder_that_cannot_be_made_is_named(rightless_node: NodeOnDisk) -> None:
    """As where the host's /etc is read-only."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    node.state_folder.mkdir()
    node.root.chmod(0o555)

    assert await prepare(node, "a") == {"a": f"cannot make {node.cdi_root}: Permission denied"}
    node.root.chmod(0o755)


async def test_a_records_folder_that_cannot_be_read_is_named(rightless_node: NodeOnDisk) -> None:
    """Who holds what is not known: nothing is given, and nothing is taken back."""
    node = rightless_node
    node.source.store(claim("a", result("npu-2")))
    await prepare(node, "a")
    node.records_folder.chmod(0)

    said = {"a": f"cannot read {node.records_folder}: Permission denied"}
    assert await prepare(node, "a") == said
    assert await unprepare(node, "a") == said
    node.records_folder.chmod(0o700)
    assert await unprepare(node, "a") == {"a": ""}


async def test_files_of_others_among_the_records_are_left_alone(two_claims: NodeOnDisk) -> None:
    """An editor's copy, a note."""
    note = two_claims.records_folder / "uid-a.json~"
    note.write_text("{}")

    assert await unprepare(two_claims, "a", "b") == {"a": "", "b": ""}

    assert [*two_claims.records_folder.iterdir()] == [note]


async def test_a_missing_plugins_directory_is_not_made(
    node: NodeOnDisk, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the kubelet's, and where it is not mounted, records would be lost."""
    node.source.store(claim("a", result("npu-2")))
    node.state_folder = node.root / "plugins/npu.huawei.com"

    await start(node, nursery)
    refused = await prepare(node, "a")

    assert errors_in(caplog) == [f"cannot make {node.records_folder}: No such file or directory"]
    assert refused == {"a": f"cannot make {node.records_folder}: No such file or directory"}
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
        spoil(node)
        await prepare(node, "b")
    finally:
        os.umask(before)

    state = node.state_folder
    paths = {
        state: 0o750,
        node.records_folder: 0o700,
        state / "serialize.lock": 0o600,
        node.records_folder / "uid-b.json": 0o600,
        node.records_folder / "uid-a.json.aside": 0o600,
        node.cdi_path("uid-b"): 0o644,
    }
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == paths | {state: 0o750 & ~umask}
