"""Claims become NPUs in containers, and are taken back."""

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from dev.rig.waiting import HANG_SECONDS, until
from tests.claims.node import POOL, NodeOnDisk, claim, ref, result
from trio_npu_dra.agent.claims.cdi import CdiFolder, Libraries
from trio_npu_dra.agent.claims.service import CallAnswered, NodeClaims
from trio_npu_dra.kit.base.errors import Invalid, Unavailable
from trio_npu_dra.kit.kubelet.driver import ClaimRef, PreparedDevice, PrepareResult


def prepared(uid: str, device: str, *requests: str) -> PreparedDevice:
    """The answer for one device."""
    return PreparedDevice(
        requests=requests or ("npu",),
        pool=POOL,
        device=device,
        cdi_device_ids=(f"npu.huawei.com/npu={uid}-{device}",),
    )


# --- the plain way -------------------------------------------------------------------------------


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


async def test_an_unprepared_claim_leaves_nothing(node: NodeOnDisk) -> None:
    """No API server is asked, and its NPU is free."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    claims = node.start()
    await claims.prepare([ref("a")])
    node.source.stored.clear()

    assert await claims.unprepare([ref("a")]) == {"uid-a": ""}

    assert (node.record_uids(), node.cdi_uids(), node.source.asked) == (set(), set(), 1)
    node.source.store(claim("b", result("npu-2")))
    assert not (await claims.prepare([ref("b")]))["uid-b"].error


async def test_an_unknown_claim_is_unprepared_already(node: NodeOnDisk) -> None:
    """Never prepared, or twice; whatever its UID is."""
    assert await node.start().unprepare([ref("a"), ref("b", "../../etc/passwd")]) == {
        "uid-a": "",
        "../../etc/passwd": "",
    }


async def test_a_bad_claim_does_not_spoil_the_others(node: NodeOnDisk) -> None:
    """One entry a UID: unknown device, missing claim, replaced claim, forbidden; and a good one."""
    node.source.store(
        claim("good", result("npu-0")),
        claim("vanished", result("npu-9")),
        claim("replaced", result("npu-1"), uid="new"),
    )

    answer = await node.start().prepare(
        [ref("good"), ref("vanished"), ref("missing"), ref("replaced")]
    )

    assert answer.keys() == {"uid-good", "uid-vanished", "uid-missing", "uid-replaced"}
    assert answer["uid-good"].devices == (prepared("uid-good", "npu-0"),)
    assert "device npu-9 does not exist" in answer["uid-vanished"].error
    assert answer["uid-missing"].error == "the claim does not exist any more"
    assert "the claim was replaced" in answer["uid-replaced"].error
    assert node.record_uids() == node.cdi_uids() == {"uid-good"}


async def test_an_answer_that_no_retry_changes_comes_at_once(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a name that nothing can have: said after one request."""
    node.source.faults.append(Invalid("get resourceclaims: 422", status=422))

    answer = await node.start().prepare([ref("a")])

    assert answer["uid-a"].error == "get resourceclaims: 422"
    assert node.source.asked == 1
    assert [line.getMessage() for line in caplog.records] == ["claim not prepared"]


async def test_an_empty_call_has_an_empty_answer(node: NodeOnDisk) -> None:
    """For both; it is a probe's, and not told."""
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
    assert prepare.seconds == pytest.approx(10.0)
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
    assert vars(caplog.records[0])["ms"] == pytest.approx(10_000)


async def test_a_device_in_two_results_is_one_cdi_device(node: NodeOnDisk) -> None:
    """Two of the same name in one spec would be refused by the runtime."""
    node.source.store(
        claim("a", *(result("npu-0", request, admin_access=True) for request in ("one", "two")))
    )

    answer = await node.start().prepare([ref("a")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-0", "one", "two"),)
    assert len(json.loads(node.cdi_path("uid-a").read_bytes())["devices"]) == 1


# --- prepared before -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_prepared_claim_has_the_same_answer_and_a_right_cdi_file(
    node: NodeOnDisk, is_restarted: bool
) -> None:
    """The kubelet asks again after its restart, and somebody may have emptied the folder."""
    node.source.store(claim("a", result("npu-2")))
    claims = node.start()
    first = await claims.prepare([ref("a")])
    inode = (node.records_folder / "uid-a.json").stat().st_ino
    shutil.rmtree(node.cdi_root)

    assert await (node.start() if is_restarted else claims).prepare([ref("a")]) == first

    assert node.cdi_uids() == {"uid-a"}
    assert (node.records_folder / "uid-a.json").stat().st_ino == inode


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


@pytest.mark.parametrize("instances", [1, 2])
async def test_a_prepare_beside_an_unprepare_of_its_claim_leaves_it_whole(
    quick_node: NodeOnDisk, instances: int, autojump_clock: MockClock
) -> None:
    """Either was last; what is answered as prepared by the last call is there."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")))
    drivers = [quick_node.start() for _ in range(instances)]

    for number in range(100):
        async with trio.open_nursery() as nursery:
            calls = [drivers[0].prepare, drivers[-1].unprepare]
            for call in calls if number % 2 else reversed(calls):
                nursery.start_soon(call, [ref("a")])
        assert quick_node.record_uids() == quick_node.cdi_uids()
    await drivers[-1].unprepare([ref("a")])
    assert quick_node.record_uids() == quick_node.cdi_uids() == set()


async def test_a_claim_allocated_anew_gets_its_new_devices(node: NodeOnDisk) -> None:
    """And frees the old ones."""
    node.source.store(claim("a", result("npu-2")))
    claims = node.start()
    await claims.prepare([ref("a")])
    node.source.store(claim("a", result("npu-3")), claim("b", result("npu-2")))

    answer = await claims.prepare([ref("a"), ref("b")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-3"),)
    assert answer["uid-b"].devices == (prepared("uid-b", "npu-2"),)
    assert b"davinci2" not in node.cdi_path("uid-a").read_bytes()


async def test_claims_of_one_call_may_change_places(node: NodeOnDisk) -> None:
    """Both let go before either takes, whichever comes first."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    claims = node.start()
    await claims.prepare([ref("a"), ref("b")])
    node.source.store(claim("a", result("npu-3")), claim("b", result("npu-2")))

    answer = await claims.prepare([ref("a"), ref("b")])

    assert answer["uid-a"].devices == (prepared("uid-a", "npu-3"),)
    assert answer["uid-b"].devices == (prepared("uid-b", "npu-2"),)


async def test_a_claim_allocated_anew_onto_a_held_device_keeps_nothing(node: NodeOnDisk) -> None:
    """It is refused, and its old device is free."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-3")))
    claims = node.start()
    await claims.prepare([ref("a"), ref("b")])
    node.source.store(claim("a", result("npu-3")))

    answer = await claims.prepare([ref("a")])

    assert "device npu-3 is held by claim default/b" in answer["uid-a"].error
    assert node.record_uids() == node.cdi_uids() == {"uid-b"}


async def test_a_new_claim_of_an_old_name_waits_for_the_old_one(node: NodeOnDisk) -> None:
    """Both are told apart by UID."""
    node.source.store(claim("a", result("npu-2")))
    claims = node.start()
    await claims.prepare([ref("a")])
    node.source.store(claim("a", result("npu-2"), uid="new"))

    refused = await claims.prepare([ref("a", "new")])
    await claims.unprepare([ref("a")])
    answer = await claims.prepare([ref("a", "new")])

    assert "held by claim default/a (UID uid-a)" in refused["new"].error
    assert answer["new"].devices == (prepared("new", "npu-2"),)


# --- who holds what ------------------------------------------------------------------------------


async def test_a_held_device_is_refused_by_its_holder(node: NodeOnDisk) -> None:
    """Namespace, name and UID; also by an instance that starts later."""
    node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    await node.start().prepare([ref("a")])

    answer = await node.start().prepare([ref("b")])

    assert "device npu-2 is held by claim default/a (UID uid-a)" in answer["uid-b"].error
    assert node.record_uids() == node.cdi_uids() == {"uid-a"}


async def test_admin_access_neither_waits_nor_holds(node: NodeOnDisk) -> None:
    """A monitor sees a used NPU, and does not keep it from the next user."""
    watches = claim("watch", result("npu-2", admin_access=True))
    node.source.store(claim("a", result("npu-2")), watches, claim("b", result("npu-2")))
    claims = node.start()

    for name in ("a", "watch"):
        assert not (await claims.prepare([ref(name)]))[f"uid-{name}"].error
    await claims.unprepare([ref("a")])
    assert not (await claims.prepare([ref("b")]))["uid-b"].error


class InMemory(CdiFolder):
    """CDI files that are only counted: the records decide who wins."""

    def write(self, uid: str, spec: Mapping[str, Any]) -> bool:
        """Write nothing."""
        return bool(uid and spec)

    def remove(self, uid: str) -> None:
        """Remove nothing."""


async def test_of_two_claims_for_one_device_exactly_one_wins(quick_node: NodeOnDisk) -> None:
    """A thousand times, eight devices at a time, in one call and in two at once."""
    devices = range(8)
    for number in devices:
        for side in "ab":
            quick_node.source.store(claim(f"{side}{number}", result(f"npu-{number}")))
    claims = quick_node.start(
        cdi=InMemory(
            root=quick_node.cdi_root,
            driver_name="x.org",
            host=quick_node.host,
            libraries=Libraries(path=""),
        )
    )
    logging.disable()
    answers: dict[str, PrepareResult] = {}
    a, b = ([ref(f"{side}{number}") for number in devices] for side in "ab")

    async def prepare(refs: list[ClaimRef]) -> None:
        answers.update(await claims.prepare(refs))

    wins = {"a": 0, "b": 0}
    try:
        for turn in range(125):
            async with trio.open_nursery() as nursery:
                if turn % 2:
                    nursery.start_soon(prepare, [*a, *b])
                else:
                    nursery.start_soon(prepare, a)
                    nursery.start_soon(prepare, b)
            winners = {uid for uid, answer in answers.items() if not answer.error}
            assert sorted(uid[-1] for uid in winners) == [str(number) for number in devices]
            assert quick_node.record_uids() == winners
            for uid in winners:
                wins[uid[-2]] += 1
            await claims.unprepare([*a, *b])
    finally:
        logging.disable(logging.NOTSET)
    assert wins["a"] + wins["b"] == 1000
    assert min(wins.values()) > 0


async def test_of_two_instances_exactly_one_gives_the_device_away(
    quick_node: NodeOnDisk, autojump_clock: MockClock
) -> None:
    """As in a rolling update, where calls go to either."""
    del autojump_clock
    quick_node.source.store(claim("a", result("npu-2")), claim("b", result("npu-2")))
    instances = [quick_node.start(), quick_node.start()]
    answers: dict[str, PrepareResult] = {}

    async def prepare(instance: NodeClaims, name: str) -> None:
        answers.update(await instance.prepare([ref(name)]))

    for number in range(50):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(prepare, instances[0], "a")
            nursery.start_soon(prepare, instances[1], "b")
        (winner,) = [uid for uid, answer in answers.items() if not answer.error]
        assert quick_node.record_uids() == quick_node.cdi_uids() == {winner}
        await instances[number % 2].unprepare([ref("a"), ref("b")])
        assert quick_node.record_uids() == quick_node.cdi_uids() == set()


async def test_a_chip_that_boots_is_waited_for(node: NodeOnDisk, nursery: trio.Nursery) -> None:
    """The same call gets it: another one would come a minute later."""
    whole = node.board.value
    node.board.set(replace(whole, chips=whole.chips[:7], unanswered=("card 7: booting",)))
    node.source.store(claim("a", result("npu-7")))

    async def boot() -> None:
        await until(lambda: node.source.asked > 1)
        node.board.set(whole)

    nursery.start_soon(boot)
    with trio.fail_after(HANG_SECONDS):
        answer = await node.start().prepare([ref("a")])
    assert answer["uid-a"].error == ""
    assert [device.device for device in answer["uid-a"].devices] == ["npu-7"]
