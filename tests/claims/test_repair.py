"""The repair mends claims while no call is about them."""

import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import AT_ONCE, NodeOnDisk, claim, ref, result
from tests.claims.restarted import errors_in
from trio_npu_dra.agent.claims.repair import keep_cdi_files
from trio_npu_dra.agent.claims.service import NodeClaims
from trio_npu_dra.kit.base import watchdog


@pytest.fixture
async def claims(node: NodeOnDisk) -> NodeClaims:
    """An instance with claims a and b prepared."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    claims = node.start()
    await claims.prepare([ref("a"), ref("b")])
    return claims


@pytest.fixture
def restart(node: NodeOnDisk, nursery: trio.Nursery) -> Callable[[], Awaitable[None]]:
    """Start the repair of a new instance."""
    return partial(nursery.start, keep_cdi_files, node.ledger(), node.cdi())


async def test_a_lost_file_comes_back_and_an_orphan_goes(
    node: NodeOnDisk,
    claims: NodeClaims,
    restart: Callable[[], Awaitable[None]],
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Within five seconds, with one log line each; foreign files stay."""
    del autojump_clock, claims
    await restart()
    node.cdi_path("uid-a").unlink()
    for name in (node.cdi_path("orphan"), node.cdi_root / "x.org-npu_other.json"):
        name.write_text("{}")

    await trio.sleep(5.1)
    assert node.cdi_uids() == {"uid-a", "uid-b", "x.org-npu_other"}

    await trio.sleep(12)
    assert sorted(line.getMessage() for line in caplog.records) == [
        "CDI file was missing or wrong and is rewritten",
        "CDI file without a claim removed",
    ]


async def test_an_orphan_that_cannot_be_removed_is_said_once(
    rightless_node: NodeOnDisk,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at each look."""
    del autojump_clock
    node = rightless_node
    node.cdi_root.mkdir()
    node.cdi_path("orphan").write_text("{}")
    node.cdi_root.chmod(0o555)

    await nursery.start(keep_cdi_files, node.ledger(), node.cdi())
    await trio.sleep(12)

    assert errors_in(caplog) == [f"cannot remove {node.cdi_path('orphan')}: Permission denied"]
    assert "CDI file without a claim removed" not in caplog.messages
    node.cdi_root.chmod(0o755)


async def test_right_files_are_not_written(
    node: NodeOnDisk,
    claims: NodeClaims,
    restart: Callable[[], Awaitable[None]],
    autojump_clock: MockClock,
) -> None:
    """An idle node's disk stays idle."""
    del autojump_clock, claims
    folders = [node.cdi_root, node.records_folder, node.cdi_path("uid-a")]
    before = [folder.stat().st_mtime_ns for folder in folders]

    await restart()
    await trio.sleep(60)

    assert [folder.stat().st_mtime_ns for folder in folders] == before


async def test_a_part_of_a_file_is_swept_at_the_start_only(
    node: NodeOnDisk, restart: Callable[[], Awaitable[None]], autojump_clock: MockClock
) -> None:
    """Later another instance may be writing it."""
    del autojump_clock
    node.cdi_root.mkdir()
    await restart()
    part = node.cdi_root / ".npu.huawei.com-npu_uid-a.json.5f3a01c2"
    part.write_bytes(b"")

    await trio.sleep(12)

    assert part.exists()


async def test_a_failing_repair_is_logged_once_and_repeated(
    node: NodeOnDisk,
    claims: NodeClaims,
    restart: Callable[[], Awaitable[None]],
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After a reboot the Ascend driver may load later than we start."""
    del autojump_clock, claims
    shutil.rmtree(node.cdi_root)
    node.cdi_root.write_text("a file where the folder should be")
    manager = node.root / "dev/davinci_manager"
    manager.unlink()

    await restart()
    await trio.sleep(60)
    node.cdi_root.unlink()
    await trio.sleep(60)
    manager.symlink_to("/dev/null")
    await trio.sleep(6)

    assert node.cdi_uids() == {"uid-a", "uid-b"}
    errors = [vars(line)["problem"] for line in caplog.records if line.levelno == logging.ERROR]
    assert [error.partition(":")[0] for error in errors] == [
        f"cannot read {node.cdi_root}",
        "/dev/davinci_manager is missing on the node, or is not a character device",
    ]


FOLLOWED: dict[str, tuple[str, str]] = {
    "hccn.conf": ("host/etc/hccn.conf", "/etc/hccn.conf"),
    "a tool": ("host/usr/local/bin/npu-smi", "/usr/local/bin/npu-smi"),
    "the operator's": ("host/etc/added.conf", "/etc/added.conf"),
    "a device node": ("dev/dvpp_cmdlist", "/dev/dvpp_cmdlist"),
}


@pytest.mark.parametrize("what", FOLLOWED)
async def test_files_of_prepared_claims_follow_the_host(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock, what: str
) -> None:
    """Whatever comes or goes: a container that restarts gets what is there then, and no more."""
    del autojump_clock
    host = replace(node.host, extra_mounts=(("/etc/added.conf", "/etc/added.conf"),))
    cdi, ledger = replace(node.cdi(), host=host), node.ledger()
    (node.root / "dev/dvpp_cmdlist").unlink()
    node.source.store(
        claim("a", result("npu-2")), claim("admin", result("npu-2", admin_access=True))
    )
    claims = node.start(cdi=cdi, ledger=ledger)
    await nursery.start(keep_cdi_files, ledger, cdi)
    await claims.prepare([ref("a"), ref("admin")])
    place, path = node.root / FOLLOWED[what][0], FOLLOWED[what][1]

    def have_it() -> list[bool]:
        texts = [node.cdi_path(f"uid-{name}").read_text() for name in ("a", "admin")]
        return [path in text for text in texts]

    for is_there in (True, False, True):
        if is_there:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to("/dev/null") if what == "a device node" else place.touch()
        else:
            place.unlink()
        await trio.sleep(6)
        assert have_it() == [is_there] * 2


async def test_a_claim_keeps_its_file_while_the_host_lacks_what_it_needs(
    node: NodeOnDisk,
    claims: NodeClaims,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By that no container starts; what another prepare would give is refused until it is back."""
    del autojump_clock
    driver, away = node.root / "host/usr/local/Ascend/driver", node.root / "host/usr/local/away"
    before = node.cdi_path("uid-a").read_bytes()
    driver.rename(away)
    await nursery.start(keep_cdi_files, node.ledger(), node.cdi())
    again = (await node.start(patience=AT_ONCE).prepare([ref("a")]))["uid-a"].error
    assert "/usr/local/Ascend/driver/lib64/ is missing on the node" in again
    await trio.sleep(12)
    assert node.cdi_path("uid-a").read_bytes() == before
    assert len(errors_in(caplog)) == 1  # of both claims

    (away / "version.info").touch()
    away.rename(driver)
    await trio.sleep(6)
    assert b"version.info" in node.cdi_path("uid-a").read_bytes()
    assert (await claims.prepare([ref("a")]))["uid-a"].error == ""


async def test_a_path_of_the_wrong_kind_is_said_once(
    node: NodeOnDisk,
    claims: NodeClaims,
    restart: Callable[[], Awaitable[None]],
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And again when it has been right meanwhile."""
    del autojump_clock, claims
    conf = node.root / "host/etc/hccn.conf"
    await restart()
    for is_folder in (True, False, True):
        conf.mkdir(parents=True) if is_folder else conf.touch()
        await trio.sleep(12)
        assert (b"hccn" in node.cdi_path("uid-a").read_bytes()) is not is_folder
        conf.rmdir() if is_folder else conf.unlink()
    said = [vars(line)["path"] for line in caplog.records if "wrong kind" in line.getMessage()]
    assert said == ["/etc/hccn.conf"] * 2


# --- a repair that is stuck ----------------------------------------------------------------------


async def test_a_repair_that_gets_no_turn_is_stuck(
    node: NodeOnDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It has a minute, and is well again when it has its turn."""
    del autojump_clock
    ledger = node.ledger()
    await nursery.start(keep_cdi_files, ledger, node.cdi())
    async with ledger.exclusive():
        await trio.sleep(30)
        assert watchdog.overdue() == ()
        await trio.sleep(60)
        (line,) = watchdog.overdue()
        assert line.startswith("repairing CDI files has taken")
    await trio.sleep(1)
    assert watchdog.overdue() == ()
