"""The effect on claims of a kubelet that fails, waits or restarts, over real sockets.

The scenarios are those of upstream's e2e_node suite in which time matters.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from dev.rig.waiting import until
from tests.claims.node import DRIVER, NodeOnDisk, claim, result
from tests.kubelet.site import (
    A_PREPARED,
    CLAIM_A,
    CLAIM_B,
    LIMIT_SECONDS,
    SlowClaims,
    around,
    prepared,
    running,
)
from trio_npu_dra.kit.base.errors import ConfigError, Forbidden, StorageError, Unavailable
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.grpc import RpcError, Status, listen_unix, methods, open_channel
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra import v1
from trio_npu_dra.kit.grpc._generated.pluginregistration import RegistrationStatus as Notification
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.kit.kubelet.plugin import serve_kubelet
from trio_npu_dra.kit.kubelet.registration import (
    NOT_REGISTERED,
    RegistrationStatus,
    wait_registered,
)
from trio_npu_dra.lab.standins.kubelet import Kubelet, open_kubelet

BOTH = ({"uid-a"}, {"uid-a"})
NOTHING: tuple[set[str], set[str]] = (set(), set())


@pytest.fixture
def slow(node: NodeOnDisk) -> SlowClaims:
    """The node's API server, which answers when the test lets it."""
    slow = SlowClaims()
    slow.stored = node.source.stored
    node.source = slow
    return slow


# --- prepare -------------------------------------------------------------------------------------


async def test_a_prepare_that_times_out_leaves_nothing_and_the_next_succeeds(
    node: NodeOnDisk, slow: SlowClaims
) -> None:
    """The kubelet's deadline ends the call here too."""
    async with running(node) as site:
        async with open_kubelet(site.registration, call_seconds=0.2) as hasty:
            with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
                await hasty.prepare([CLAIM_A])
        assert site.files() == NOTHING

        slow.let.set()
        async with open_kubelet(site.registration) as kubelet:
            assert await prepared(kubelet, CLAIM_A) == A_PREPARED
            assert site.files() == BOTH


async def test_a_prepare_that_is_reset_leaves_nothing_and_the_next_succeeds(
    node: NodeOnDisk, slow: SlowClaims
) -> None:
    """RST_STREAM ends the call, and its connection goes on."""
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kubelet.prepare, [CLAIM_A])
            await slow.asked_event.wait()
            nursery.cancel_scope.cancel()
        slow.let.set()
        assert await kubelet.unprepare([CLAIM_B]) == {"uid-b": ""}
        assert site.files() == NOTHING

        assert await prepared(kubelet, CLAIM_A) == A_PREPARED
        assert site.line.accepted == 1


async def test_a_prepare_fails_and_then_succeeds(node: NodeOnDisk) -> None:
    """The first answer has the reason, for this claim alone."""
    node.source.faults.append(Forbidden("get resourceclaims default/a: 403", status=403))
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        refused = await kubelet.prepare([CLAIM_A])
        assert refused["uid-a"].error == "get resourceclaims default/a: 403"
        assert refused["uid-a"].devices == []

        assert await prepared(kubelet, CLAIM_A, CLAIM_B) == A_PREPARED | {
            "uid-b": [f"{DRIVER}/npu=uid-b-npu-3"]
        }


async def test_a_kubelet_that_dies_mid_call_prepares_again_when_it_is_back(
    node: NodeOnDisk, slow: SlowClaims
) -> None:
    """The lost call has no more effect; the new kubelet registers the driver and gets an answer."""
    async with running(node) as site:
        async with open_kubelet(site.registration) as kubelet, trio.open_nursery() as nursery:
            nursery.start_soon(_fails, kubelet)
            await slow.asked_event.wait()
            site.line.cut()
        slow.let.set()
        assert site.files() == NOTHING

        async with open_kubelet(site.registration) as kubelet:
            assert await prepared(kubelet, CLAIM_A) == A_PREPARED


async def test_a_lost_connection_is_replaced_for_calls_and_health(node: NodeOnDisk) -> None:
    """The same kubelet does so, without registering the driver again."""
    async with running(node) as site, open_channel(site.line.path) as channel:
        for number in (1, 2):
            async with channel.stream(
                methods.NODE_WATCH_RESOURCES_V1, methods.NODE_WATCH_RESOURCES_V1.request()
            ) as health:
                assert len((await anext(health)).devices) == 1
                request = v1.NodePrepareResourcesRequest(claims=[CLAIM_A])
                answer = await channel.unary(
                    methods.NODE_PREPARE_RESOURCES_V1, request, timeout_seconds=5
                )
                assert answer.claims["uid-a"].error == ""
                assert site.line.accepted == number
                site.line.cut()
                with pytest.raises(RpcError, match="UNAVAILABLE"):
                    await anext(health)


# --- unprepare -----------------------------------------------------------------------------------


async def test_an_unprepare_needs_no_api_server(node: NodeOnDisk) -> None:
    """A pod can end while the API server is away, its claim deleted or never prepared."""
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        await prepared(kubelet, CLAIM_A)
        node.source.stored.clear()
        node.source.faults.append(Unavailable("503", status=503))

        for _ in range(2):  # the second time it is gone already
            assert await kubelet.unprepare([CLAIM_A, CLAIM_B]) == {"uid-a": "", "uid-b": ""}

        assert site.files() == NOTHING
        assert node.source.asked == 1


async def test_an_unprepare_fails_and_then_succeeds(node: NodeOnDisk) -> None:
    """The answer has the reason; the pod stays until a call succeeds."""
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        await prepared(kubelet, CLAIM_A)
        kept = node.cdi_root.rename(node.root / "kept")
        node.cdi_root.write_text("a file where the folder should be")
        assert await kubelet.unprepare([CLAIM_A]) == {
            "uid-a": f"cannot remove {node.cdi_path('uid-a')}: Not a directory"
        }
        node.cdi_root.unlink()
        kept.rename(node.cdi_root)
        assert await kubelet.unprepare([CLAIM_A]) == {"uid-a": ""}
        assert site.files() == NOTHING


async def test_a_prepare_beside_an_unprepare_leaves_the_claim_whole(node: NodeOnDisk) -> None:
    """Both are on one connection, and either may be the last."""
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(prepared, kubelet, CLAIM_A)
                nursery.start_soon(kubelet.unprepare, [CLAIM_A])
            assert site.files() in (BOTH, NOTHING)
        await kubelet.unprepare([CLAIM_A])
        assert site.files() == NOTHING


# --- registration --------------------------------------------------------------------------------


async def test_a_refused_registration_is_forgotten_when_the_next_succeeds(
    node: NodeOnDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """Readiness follows the kubelet's last decision; a refusal is an error in the log."""
    async with running(node) as site:
        async with open_channel(site.registration) as channel:
            await channel.unary(
                methods.NOTIFY_REGISTRATION_STATUS,
                Notification(plugin_registered=False, error="version not supported"),
                timeout_seconds=5,
            )
        assert site.status.value == RegistrationStatus(
            registered=False, error="version not supported"
        )
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        async with open_kubelet(site.registration) as kubelet:
            assert site.status.value == RegistrationStatus(registered=True)
            assert await prepared(kubelet, CLAIM_A) == A_PREPARED


async def test_a_plugin_may_begin_to_listen_after_its_registration(node: NodeOnDisk) -> None:
    """Until then calls are UNAVAILABLE; the kubelet needs no new registration."""
    async with around(node) as make:
        site = make()
        site.register(site.service)
        async with open_kubelet(site.registration) as kubelet:
            with pytest.raises(RpcError) as caught:
                await kubelet.prepare([CLAIM_A])
            assert caught.value.status is Status.UNAVAILABLE
            site.serve()
            assert await prepared(kubelet, CLAIM_A) == A_PREPARED


async def test_two_plugins_on_one_node_share_a_claim(node: NodeOnDisk) -> None:
    """Each answers for its devices, and the unprepare of one leaves the other's files."""
    other = "npu.example.com"
    node.source.store(claim("a", result("npu-2"), result("npu-5", "more", driver=other)))
    async with around(node) as make:
        ours, theirs = make(), make(driver=other)
        for site in (ours, theirs):
            site.serve()
            await site.connect()
        async with (
            open_kubelet(ours.registration) as our_kubelet,
            open_kubelet(theirs.registration) as their_kubelet,
        ):
            assert await prepared(our_kubelet, CLAIM_A) == A_PREPARED
            assert await prepared(their_kubelet, CLAIM_A) == {"uid-a": [f"{other}/npu=uid-a-npu-5"]}
            assert await our_kubelet.unprepare([CLAIM_A]) == {"uid-a": ""}
        assert (ours.files(), theirs.files()) == (NOTHING, BOTH)


# --- start and stop ------------------------------------------------------------------------------


async def test_a_stop_sees_a_call_through_that_is_under_way(
    node: NodeOnDisk, slow: SlowClaims
) -> None:
    """The sockets are removed first, so no new call comes; the answer still reaches the kubelet."""
    async with around(node) as make:
        site, stop, stopped = make(), trio.Event(), trio.Event()
        answers: list[dict[str, list[str]]] = []

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            await site.be_plugin(stop, grace_seconds=LIMIT_SECONDS, task_status=task_status)
            stopped.set()

        async def call(kubelet: Kubelet) -> None:
            answers.append(await prepared(kubelet, CLAIM_A))

        await site.nursery.start(serve)
        async with open_kubelet(site.registration) as kubelet, trio.open_nursery() as nursery:
            nursery.start_soon(call, kubelet)
            await slow.asked_event.wait()
            stop.set()
            await until(lambda: not (site.service.exists() or site.registration.exists()))
            slow.let.set()
        await stopped.wait()
        assert answers == [A_PREPARED]
        assert site.status.value == NOT_REGISTERED


async def test_a_start_removes_the_sockets_of_a_killed_instance(node: NodeOnDisk) -> None:
    """Once the kubelet has registered it; else that goes on calling them."""
    async with around(node) as make:
        site = make()
        dead = replace(site.endpoints, pod_uid="dead")
        dead.plugin_directory.mkdir()
        for path in (dead.service, dead.registration):
            listen_unix(path).socket.close()
        await site.nursery.start(site.be_plugin, trio.Event())
        site.status.set(RegistrationStatus(registered=True))
        await until(lambda: not (dead.service.exists() or dead.registration.exists()))
        assert site.service.exists()


@pytest.mark.parametrize(("registered_after", "waited"), [(0, 0), (1, 1), (3, 2)])
async def test_publishing_waits_for_the_kubelet_but_not_for_long(
    autojump_clock: MockClock, registered_after: float, waited: float
) -> None:
    """A kubelet that is away keeps no slice back."""
    status = Observable(NOT_REGISTERED)

    async def register() -> None:
        await trio.sleep(registered_after)
        status.set(RegistrationStatus(registered=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(register)
        await wait_registered(status)
        assert autojump_clock.current_time() == pytest.approx(waited)


@pytest.mark.parametrize(
    ("parent_exists", "error", "words"),
    [
        (True, StorageError, rf"cannot make .*/{DRIVER}: Not a directory"),
        (False, ConfigError, rf"/plugins/{DRIVER} does not exist"),
    ],
)
async def test_a_plugins_directory_that_cannot_be_used_is_named(
    tmp_path: Path, parent_exists: bool, error: type[Exception], words: str
) -> None:
    """The error comes at the start, before the kubelet can find the driver."""
    endpoints = Endpoints(
        driver_name=DRIVER,
        plugin_directory=tmp_path / "plugins" / DRIVER,
        registrar_directory=tmp_path,
    )
    if parent_exists:
        endpoints.plugin_directory.parent.mkdir()
        endpoints.plugin_directory.write_text("a file where the folder should be")
    with pytest.RaisesGroup(pytest.RaisesExc(error, match=words)):
        await serve_kubelet(
            NodeOnDisk(tmp_path / "n").start(),
            Observable(()),
            Observable(NOT_REGISTERED),
            endpoints=endpoints,
            stop=trio.Event(),
            grace_seconds=1,
        )
    assert not endpoints.registration.exists()


@pytest.mark.parametrize("umask", [0, 0o077], ids=oct)
async def test_sockets_are_for_root_alone(node: NodeOnDisk, umask: int) -> None:
    """That holds for any umask; the plugin's folder is open to its group at most."""
    before = os.umask(umask)
    try:
        async with around(node) as make:
            site = make()
            await site.nursery.start(site.be_plugin, trio.Event())
            modes = [
                stat.S_IMODE(path.stat().st_mode)
                for path in (site.service, site.registration, site.service.parent)
            ]
    finally:
        os.umask(before)
    assert modes == [0o600, 0o600, 0o750]


async def test_a_claim_says_in_its_file_what_the_answer_names(node: NodeOnDisk) -> None:
    """The runtime finds the names that the kubelet passes on."""
    async with running(node) as site, open_kubelet(site.registration) as kubelet:
        (name,) = (await prepared(kubelet, CLAIM_A))["uid-a"]
        spec = json.loads(node.cdi_path("uid-a").read_bytes())
        assert [f"{spec['kind']}={device['name']}" for device in spec["devices"]] == [name]


async def _fails(kubelet: Kubelet) -> None:
    with pytest.raises(RpcError, match="UNAVAILABLE"):
        await kubelet.prepare([CLAIM_A])
