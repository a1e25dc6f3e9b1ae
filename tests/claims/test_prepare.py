"""Claims become NPUs in containers, and are taken back."""

import json
import logging

import pytest
import trio
from trio.testing import MockClock

from tests.claims.node import POOL, NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.service import CallAnswered
from trio_npu_dra.kit.base.errors import Unavailable
from trio_npu_dra.kit.kubelet.driver import PreparedDevice, PrepareResult


def prepared(uid: str, device: str, *requests: str) -> PreparedDevice:
    """The answer for one device."""
    return PreparedDevice(
        requests=requests or ("npu",),
        pool=POOL,
        device=device,
        cdi_device_ids=(f"npu.huawei.com/npu={uid}-{device}",),
    )


# --- one call ------------------------------------------------------------------------------------


async def test_a_claim_is_recorded_and_handed_out(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Record, CDI file, answer, and one log line."""
    node.source.store(claim("a", result("npu-2", "one"), result("npu-5", "two/x")))
    caplog.set_level(logging.INFO)

    answer = await node.start().prepare([ref("a")])

    assert answer == {
        "uid-a": PrepareResult(
            devices=(prepared("uid-a", "npu-2", "one"), prepared("uid-a", "npu-5", "two"))
        )
    }
    assert [device["device"] for device in node.record("uid-a")["devices"]] == ["npu-2", "npu-5"]
    spec = json.loads(node.cdi_path("uid-a").read_bytes())
    assert [device["name"] for device in spec["devices"]] == ["uid-a-npu-2", "uid-a-npu-5"]
    (line,) = caplog.records
    assert line.getMessage() == "claim prepared"
    assert vars(line)["claim"] == "default/a"
    assert vars(line)["devices"] == ["npu-2", "npu-5"]
    assert vars(line)["ms"] >= 0


async def test_an_unknown_claim_is_unprepared_already(node: NodeOnDisk) -> None:
    """Never prepared, or twice; whatever its UID is."""
    assert await node.start().unprepare([ref("a"), ref("b", "../../etc/passwd")]) == {
        "uid-a": "",
        "../../etc/passwd": "",
    }


async def test_an_empty_call_has_an_empty_answer(node: NodeOnDisk) -> None:
    """For both; it is a probe's, and not reported."""
    calls: list[CallAnswered] = []
    claims = node.start(on_call=calls.append)

    assert (await claims.prepare([]), await claims.unprepare([])) == ({}, {})
    assert calls == []


async def test_each_call_is_told_with_its_errors_and_how_long_it_took(
    node: NodeOnDisk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Metrics are made of it, and a log line for each claim."""
    del autojump_clock
    caplog.set_level(logging.INFO)
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-9")))
    node.source.faults.append(Unavailable("503", status=503, retry_after=10.0))
    calls: list[CallAnswered] = []
    claims = node.start(on_call=calls.append)

    await claims.prepare([ref("a"), ref("b")])
    node.cdi_root.rename(node.root / "kept")
    node.cdi_root.write_text("a file where the folder should be")
    await claims.unprepare([ref("a"), ref("b")])

    prepare, unprepare = calls
    assert (prepare.operation, prepare.claims) == ("prepare", 2)
    assert 10 <= prepare.seconds <= 15
    assert [str(error).split(" (")[0] for error in prepare.errors] == [
        "device npu-9 does not exist on node node-1 any more"
    ]
    assert (unprepare.operation, unprepare.claims, len(unprepare.errors)) == ("unprepare", 2, 1)
    assert 35 < unprepare.seconds < 40  # as long as it may help
    assert [(line.getMessage(), vars(line)["uid"]) for line in caplog.records] == [
        ("claim prepared", "uid-a"),
        ("claim not prepared", "uid-b"),
        ("claim not unprepared", "uid-a"),
        ("claim unprepared", "uid-b"),
    ]
    assert vars(caplog.records[0])["ms"] == pytest.approx(1000 * prepare.seconds, abs=0.01)


# --- side by side --------------------------------------------------------------------------------


async def test_pods_share_a_claim_at_once_and_in_turn(node: NodeOnDisk) -> None:
    """Each pod has the same answer; one record, one file, until the last has ended."""
    node.source.store(claim("a", result("npu-2")))
    claims = node.start()
    answers: list[PrepareResult] = []

    async def start_pod() -> None:
        answers.append((await claims.prepare([ref("a")]))["uid-a"])

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(start_pod)
    inode = node.cdi_path("uid-a").stat().st_ino
    await start_pod()

    assert answers == [PrepareResult(devices=(prepared("uid-a", "npu-2"),))] * 4
    assert node.cdi_path("uid-a").stat().st_ino == inode
    assert await claims.unprepare([ref("a")]) == {"uid-a": ""}
    assert node.record_uids() == node.cdi_uids() == set()


async def test_a_prepare_beside_an_unprepare_of_its_claim_leaves_it_whole(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """Either was last; what is answered as prepared by the last call is there."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")))
    driver = quick_node.start()

    for number in range(100):
        async with trio.open_nursery() as nursery:
            calls = [driver.prepare, driver.unprepare]
            for call in calls if number % 2 else reversed(calls):
                nursery.start_soon(call, [ref("a")])
        assert quick_node.record_uids() == quick_node.cdi_uids()
    await driver.unprepare([ref("a")])
    assert quick_node.record_uids() == quick_node.cdi_uids() == set()


async def test_of_two_claims_for_one_device_exactly_one_gets_it(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """In two calls side by side."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    driver = quick_node.start()
    answers: dict[str, PrepareResult] = {}

    async def prepare(name: str) -> None:
        answers.update(await driver.prepare([ref(name)]))

    for _ in range(50):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prepare, "a")
            nursery.start_soon(prepare, "b")
        (winner,) = [uid for uid, answer in answers.items() if not answer.error]
        assert quick_node.record_uids() == quick_node.cdi_uids() == {winner}
        await driver.unprepare([ref("a"), ref("b")])
        assert quick_node.record_uids() == quick_node.cdi_uids() == set()
