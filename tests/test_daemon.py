"""The daemon as a whole: real sockets, real library calls, stand-ins for API server and kubelet."""

import os
import re
import shutil
import signal
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.agent import running_agent
from dev.rig.parts import DRIVER, NODE, Rig
from dev.rig.waiting import HANG_SECONDS, until
from trio_npu_dra.agent import daemon
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.agent.control.client import ask_all
from trio_npu_dra.ascend import ascend_driver
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import Node, ResourceClaim, ResourceSlice
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import (
    Claim,
    NodePrepareResourceResponse,
)
from trio_npu_dra.kit.kubelet import registration
from trio_npu_dra.lab.simulator import Severity
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet


async def test_a_claim_goes_all_the_way_and_back(rig: Rig) -> None:
    """It passes discovery, slice, registration, prepare, CDI file and unprepare."""
    async with rig.registered() as kubelet:
        devices = (await rig.published()).spec.devices or ()
        claim = rig.claim("a", "npu-3")
        answer = (await kubelet.prepare([claim]))[claim.uid]

        assert [device.name for device in devices] == [f"npu-{n}" for n in range(8)]
        assert answer.error == ""
        assert [device.device_name for device in answer.devices] == ["npu-3"]
        assert len(rig.cdi_files) == len(rig.records) == 1

        assert await kubelet.unprepare([claim]) == {claim.uid: ""}
        assert rig.cdi_files == rig.records == []


async def test_nothing_is_scheduled_before_the_kubelet_knows_the_driver(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first slice follows the registration: an earlier pod would wait for minutes."""
    monkeypatch.setattr(registration, "PATIENCE_SECONDS", 60)  # enough for a slow machine
    caplog.set_level("INFO")
    async with rig.registered():
        await rig.published()
    said = [record.getMessage() for record in caplog.records]
    assert said.index("registered with the kubelet") < said.index("pool published")


async def test_a_start_asks_the_api_server_five_times(rig: Rig) -> None:
    """Once for each thing: 5,000 nodes may start at a time. The next start has nothing to write."""

    def asked() -> Counter[str]:
        return Counter(
            "dry run"
            if "dryRun" in request.query
            else f"{request.verb} {request.path.partition('/v1/')[2]}"
            for request in rig.api.requests
        )

    look = {
        "dry run": 1,
        f"get nodes/{NODE}": 1,
        "list resourceslices": 1,
        "watch resourceslices": 1,
    }
    async with rig.registered():
        await until(lambda: asked().total() >= 5)
        await wait_all_tasks_blocked(0.02)
        assert asked() == look | {"create resourceslices": 1}
    rig.api.requests.clear()
    async with rig.registered():
        await until(lambda: asked().total() >= 4)
        await wait_all_tasks_blocked(0.02)
        assert asked() == look


async def test_the_node_is_labelled_before_the_first_slice(rig: Rig) -> None:
    """That costs a restart one request; the labels stay at a stop, and go with the last chip."""
    rig.label_node = True

    def asked() -> list[str]:
        return [
            f"{one.verb} {one.path.split('/')[-1]}"
            for one in rig.api.requests
            if "dryRun" not in one.query and ("/nodes/" in one.path or "slices" in one.path)
        ]

    look = [f"get {NODE}", f"get {NODE}", "list resourceslices", "watch resourceslices"]
    first = [f"patch {NODE}", "create resourceslices"]
    async with rig.registered():
        await until(lambda: len(asked()) >= 6)
        assert sorted(asked()) == sorted(look + first)
        assert asked().index(first[0]) < asked().index(first[1])
    facts = {"chip": "910B4", "count": "8", "driver-version": "24.1.rc2", "model": "Ascend910B"}
    wanted = {f"{DRIVER}/{name}": fact for name, fact in facts.items()}
    assert labels(rig) == wanted
    rig.api.requests.clear()
    async with rig.registered():
        await until(lambda: len(asked()) >= 4)
        await wait_all_tasks_blocked(0.02)
        assert sorted(asked()) == look
        with rig.board.control() as control:
            control.set_gone(7)
            await until(lambda: labels(rig) == wanted | {f"{DRIVER}/count": "7"})
            for number in range(7):
                control.set_gone(number)
            await until(lambda: labels(rig) == {})


async def test_neither_slices_nor_claims_wait_for_the_right_to_label(rig: Rig) -> None:
    """The Node is labelled soon after the right is there."""
    rig.label_node = True
    slices = {"create", "list", "update", "watch"}
    rig.api.rights = {"nodes": {"get"}, "resourceclaims": {"get"}, "resourceslices": slices}
    async with rig.registered() as kubelet:
        await rig.published()
        claim = rig.claim("a", "npu-3")
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        assert labels(rig) == {}
        rig.api.rights = None
        await until(lambda: f"{DRIVER}/model" in labels(rig))


def labels(rig: Rig) -> dict[str, str]:
    """Those of the Node."""
    (node,) = rig.api.all(Node)
    return node.metadata.labels


async def test_a_separated_npu_is_told_shown_and_released(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node and claim have Events, `npu-dra health` the holder; a release makes the NPU well."""
    plugins = f"--kubelet-plugins-directory-path={rig.folder}/plugins"

    async def health(*words: str) -> str:
        assert await trio.to_thread.run_sync(main, ["health", *words, plugins]) == 0
        return capsys.readouterr().out

    def said() -> list[tuple[str, str, str]]:
        events = rig.api.all(Event)
        return sorted((one.involved_object.kind, one.reason, one.type) for one in events)

    async with rig.registered() as kubelet:
        await rig.published()
        await kubelet.prepare([rig.claim("train", "npu-2")])
        await seen(kubelet, "npu-2", 1)
        with rig.board.control() as control:
            control.add_fault(2, 0x80E01801, Severity.MAJOR)
            await seen(kubelet, "npu-2", 2)
            control.clear_fault(2, 0x80E01801)
            await seen(kubelet, "npu-2", 1)
            control.add_fault(2, 0x80E01801, Severity.MAJOR)
            await seen(kubelet, "npu-2", 2)
            control.clear_fault(2, 0x80E01801)
        await until(lambda: len(said()) == 6)
        row = next(row for row in (await health()).splitlines() if row.startswith("npu-2"))
        assert "ManuallySeparateNPU" in row
        assert row.endswith("2 times in 24 h  default/train")

        assert await health("release", "npu-2") == (
            "npu-2 is released, and its faults are counted from zero\n"
        )
        await seen(kubelet, "npu-2", 1)
    assert said() == [
        (kind, reason, type_)
        for kind in ("Node", "ResourceClaim")
        for reason, type_ in (
            ("NpuFault", "Warning"),
            ("NpuRecovered", "Normal"),
            ("NpuSeparated", "Warning"),
        )
    ]


async def test_a_fault_is_in_the_slice_while_no_call_of_the_library_returns(rig: Rig) -> None:
    """As while the library starts, or while others ask about chips that hang."""
    async with rig.registered():
        await rig.published()
        health = partial(ask_all, rig.settings.plugin_directory, "GET", "/health")
        while '"watch":"events"' not in (await trio.to_thread.run_sync(health))[0].text:  # noqa: ASYNC110 - a page
            await trio.sleep(0.01)
        with rig.board.control() as control:
            control.hang()
            try:
                control.add_fault(2, 0x80E01801, Severity.MAJOR)
                await until(lambda: tainted(rig) == ["npu-2"])
            finally:
                control.release()


def tainted(rig: Rig) -> list[str]:
    """The devices that a slice has with a taint."""
    return [
        device.name
        for each in rig.api.all(ResourceSlice)
        for device in each.spec.devices or ()
        if device.taints
    ]


async def test_a_restart_says_nothing_of_what_is_known(rig: Rig) -> None:
    """A fault that an earlier daemon has seen causes no new Event."""
    with rig.board.control() as control:
        control.add_fault(2, 0x80E01801, Severity.MAJOR)
        async with rig.registered():
            await until(lambda: len(rig.api.all(Event)) == 1)
        (before,) = rig.api.all(Event)

        async with rig.registered():
            control.add_fault(3, 0x80E01801, Severity.MAJOR)
            await until(lambda: len(rig.api.all(Event)) > 1)

    others = [event for event in rig.api.all(Event) if event != before]
    assert [event.message[:6] for event in others] == ["npu-3:"]


async def seen(kubelet: Kubelet, device: str, health: int) -> None:
    """Wait until the stream has that state."""
    await kubelet.health.wait_until(
        lambda devices: (NODE, device) in devices and devices[NODE, device].health == health
    )


async def test_a_claim_for_several_pods_is_told(rig: Rig) -> None:
    """The pods themselves are never read."""
    async with rig.registered() as kubelet:
        await kubelet.prepare([rig.claim("npu", "npu-0", pods=("one", "two"))])
        await until(lambda: bool(rig.api.all(Event)))
    (event,) = rig.api.all(Event)
    assert (event.involved_object.name, event.reason) == ("npu", "NpuForSeveralPods")
    assert event.message.startswith("npu-0: reserved for several pods (one; two)")


async def test_a_restart_finds_claim_and_slice_and_writes_nothing(rig: Rig) -> None:
    """Equal facts cause no write, and prepared claims are still known."""
    async with rig.registered() as kubelet:
        before = await rig.published()
        claim = rig.claim("a", "npu-0")
        await kubelet.prepare([claim])
    rig.cdi_files[0].unlink()
    rig.api.requests.clear()

    async with rig.registered() as kubelet:
        assert len(rig.cdi_files) == 1
        await until(lambda: rig.api.asked("watch", "resourceslices") > 0)
        assert await kubelet.unprepare([claim]) == {claim.uid: ""}

    assert rig.api.all(ResourceSlice) == (before,)
    assert not any(rig.api.asked(verb, "resourceslices") for verb in ("create", "update", "delete"))


async def test_the_status_of_a_claim_is_written_once_a_prepare(rig: Rig) -> None:
    """Not by a restart; again if a read shows that somebody removed it.

    Or if the claim was allocated anew while the flag was off.
    """

    def claims() -> tuple[ResourceClaim, ...]:
        return rig.api.all(ResourceClaim)

    async def are_said() -> None:
        await until(lambda: all(one.status.devices for one in claims()))

    def unsay() -> None:
        (stored,) = (claim for claim in claims() if claim.metadata.uid == one.uid)
        anew = stored.status.model_copy(update={"devices": ()})
        rig.api.put(stored.model_copy(update={"status": anew}))

    one = rig.claim("one", "npu-0")
    async with rig.registered() as kubelet:
        await kubelet.prepare([one])
        await are_said()
        unsay()
        await kubelet.prepare([one])
        await are_said()
    async with rig.registered() as kubelet:
        await kubelet.prepare([rig.claim("two", "npu-1")])
        await are_said()
    assert rig.api.asked("patch", "resourceclaims") == 3

    rig.claim_status = False
    async with rig.registered() as kubelet:
        await kubelet.unprepare([one])
        unsay()
        await kubelet.prepare([one])
    rig.claim_status = True
    async with rig.registered():
        await are_said()


async def test_term_sees_a_prepare_in_flight_through(rig: Rig) -> None:
    """The registration socket goes first, the call gets its answer, then the daemon ends."""
    answers: dict[str, NodePrepareResourceResponse] = {}

    async def prepare(kubelet: Kubelet, claim: Claim) -> None:
        answers.update(await kubelet.prepare([claim]))

    async with trio.open_nursery() as nursery:
        ended = trio.Event()

        async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await daemon.run(rig.settings, task_status=task_status)
            ended.set()

        await nursery.start(run)
        async with open_kubelet(rig.registration) as kubelet:
            await rig.published()
            claim = rig.claim("a", "npu-0")
            rig.api.fail_next(100, status=503, verb="get")
            async with trio.open_nursery() as calls:
                calls.start_soon(prepare, kubelet, claim)
                await until(lambda: rig.api.asked("get", "resourceclaims") > 0)
                os.kill(os.getpid(), signal.SIGTERM)
                await until(lambda: not rig.registration.exists())
                assert not answers
                rig.api.heal()
        await ended.wait()

    assert [answer.error for answer in answers.values()] == [""]
    assert len(rig.cdi_files) == len(rig.records) == 1
    assert not list((rig.folder / "plugins" / DRIVER).glob("*.sock"))


async def test_pods_can_end_while_the_api_server_is_away(rig: Rig) -> None:
    """Registration and unprepare need no API server."""
    async with rig.registered() as kubelet:
        claim = rig.claim("a", "npu-0")
        await kubelet.prepare([claim])
    rig.api.fail_next(10_000, drop="before")

    async with rig.registered() as kubelet:
        assert await kubelet.unprepare([claim]) == {claim.uid: ""}

    assert rig.cdi_files == rig.records == []


@pytest.mark.parametrize("device_plugin", ["", "all"])
async def test_a_node_without_npus_publishes_an_empty_pool(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, device_plugin: str
) -> None:
    """A node without Ascend driver and hardware is no error, and has no resource."""
    monkeypatch.setattr(registration, "PATIENCE_SECONDS", 0.01)  # no kubelet registers it
    bare = rig.folder / "bare"
    bare.mkdir()
    roots = {"host_root": bare, "dev_root": bare, "sysfs_root": bare}
    settings = rig.settings.model_copy(update={**roots, "device_plugin": device_plugin})

    async with rig.device_manager() as manager, trio.open_nursery() as nursery:
        await nursery.start(daemon.run, settings)
        assert not (await rig.published()).spec.devices
        assert manager.registrations == []
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("has_hardware", [False, True])
async def test_an_ascend_driver_that_comes_after_the_daemon_is_found(
    rig: Rig, caplog: pytest.LogCaptureFixture, *, has_hardware: bool
) -> None:
    """Where there is no PCI bus, too. Hardware without a driver never gets an empty pool."""
    away = rig.board.root / "away"
    away.mkdir()
    hidden = [rig.board.root / "usr/local/Ascend"]
    if not has_hardware:
        hidden += [rig.board.sysfs_root / "bus", *rig.board.dev_root.glob("*davinci*")]
    for path in hidden:
        path.rename(away / path.name)
    async with rig.registered() as kubelet:
        if has_hardware:
            await until(lambda: "NPUs cannot be listed" in caplog.text)
            assert not rig.api.all(ResourceSlice)
            folder = rig.settings.plugin_directory
            (health,) = await trio.to_thread.run_sync(ask_all, folder, "GET", "/health")
            assert "not been read yet: libdcmi.so cannot be loaded: looked in" in health.text
        else:
            assert not (await rig.published()).spec.devices
        for path in hidden:
            (away / path.name).rename(path)
        await until(
            lambda: any(len(each.spec.devices or ()) == 8 for each in rig.api.all(ResourceSlice))
        )
        claim = rig.claim("a", "npu-3")
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""


async def test_a_daemon_whose_library_was_replaced_ends_by_itself(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its container is started again, and has the new one."""
    monkeypatch.setattr(ascend_driver, "_LOOK_SECONDS", 0.01)
    library = rig.board.library
    async with trio.open_nursery() as nursery:
        await nursery.start(daemon.run, rig.settings)
        await rig.published()
        shutil.copy(library, library.with_name("new"))
        library.with_name("new").rename(library)
    assert "library was replaced: stopping" in caplog.text


async def test_a_crash_in_the_library_leaves_lines(rig: Rig) -> None:
    """Such as SIGBUS, when it is overwritten while it is in use."""
    async with running_agent(rig) as agent:
        await agent.listening(rig.registration)
        os.kill(agent.pid, signal.SIGBUS)
        # faulthandler reads the frames of threads that run, and may fall over one that ends.
        assert await agent.ended() in {-signal.SIGBUS, -signal.SIGSEGV}
        assert "Fatal Python error: Bus error" in agent.log.read_text()


PAGE = Path("docs/architecture.md").read_text(encoding="utf-8")
TASKS = {
    "DCMI worker": ("DcmiWorker._serve",),
    "support": (),
    "signals": ("receive_signals",),
    "pages": ("serve_http", "serve_probes"),
    "control": ("serve_control",),
    "service": (),
    "NPUs": ("_own_and_work",),
    "publish": (".follow_pool",),
    "serve_kubelet": (),
    "registration socket": ("server.serve",),
}
"""The tasks of a row of the page's tree, where that is not the task's name."""


async def test_the_tasks_of_the_page_live_and_sigusr1_logs_them(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """In a daemon with all that flags add; the log shows operators what the daemon is doing."""
    caplog.set_level("INFO")
    rig.http_port, rig.device_plugin = 0, "7"
    rig.label_node = True
    tree = PAGE.partition("trio.run(daemon.run)\n")[2]
    rows = re.findall("[├└]─ +(.+?)(?:  |$)", tree.partition("```")[0], re.MULTILINE)
    wanted = {name for row in rows for name in TASKS.get(row, row.split()[:1])}
    settings = rig.settings.model_copy(update={"healthcheck_port": 0})

    async with rig.device_manager(), trio.open_nursery() as nursery:
        await nursery.start(daemon.run, settings)
        async with open_kubelet(rig.registration):
            with trio.move_on_after(HANG_SECONDS / 2):  # less than the rig has
                while wanted:
                    caplog.clear()
                    os.kill(os.getpid(), signal.SIGUSR1)
                    await until(lambda: "tasks" in caplog.text)
                    lines = caplog.text.partition("daemon.nursery.run")[2].split()
                    wanted -= {name for name in wanted if any(one.endswith(name) for one in lines)}
            assert not wanted
        nursery.cancel_scope.cancel()
