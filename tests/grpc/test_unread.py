"""Peers that do not read: what is kept for them is bounded, and what ends their calls."""

from __future__ import annotations

from pathlib import Path

import h2.events
import pytest
import trio
from grpclib.exceptions import StreamTerminatedError
from h2.settings import SettingCodes
from trio.testing import wait_all_tasks_blocked

from dev.grpc.peer import connected
from dev.grpc.serving import ECHO, WATCH, Held, serving
from trio_npu_dra.kit.grpc import RpcError, Send, Status
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus
from trio_npu_dra.kit.grpc.server import STATUS_TEXT_LIMIT


class Endless:
    """A handler that sends until it is cancelled, and reports its end."""

    def __init__(self) -> None:
        self.sent = 0
        self.begun = trio.Event()
        self.ended = trio.Event()

    async def __call__(self, _: RegistrationStatus, send: Send[PluginInfo]) -> None:
        """Send 16 KiB again and again."""
        try:
            while True:
                await send(PluginInfo(name="x" * (16 << 10)))
                self.sent += 1
                self.begun.set()
        finally:
            self.ended.set()


@pytest.mark.parametrize("window", [1 << 15, 1 << 30], ids=["small window", "full socket"])
async def test_a_handler_is_as_slow_as_its_reader(path: Path, window: int) -> None:
    """It waits while its peer does not read, goes on as it reads, and ends when it hangs up."""
    endless = Endless()
    async with serving(path, [WATCH.handled_by(endless)]):
        async with connected(path) as peer:
            peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: window})
            peer.h2.increment_flow_control_window(1 << 30)
            peer.call(WATCH.path)
            await peer.flush()
            await endless.begun.wait()
            await wait_all_tasks_blocked(0.01)
            before = endless.sent
            assert before < 1_000
            while endless.sent == before:
                data = await peer.until(h2.events.DataReceived)
                peer.h2.acknowledge_received_data(data.flow_controlled_length, data.stream_id)
        await endless.ended.wait()


async def test_a_peer_that_reads_no_refusal_gets_no_more_of_them(path: Path) -> None:
    """A call ends once its end is sent, so calls without number would be kept for such a peer."""
    begun = 0

    async def refuse(_: RegistrationStatus) -> PluginInfo:
        nonlocal begun
        begun += 1
        raise RpcError(Status.ABORTED, f"{begun} {'x' * STATUS_TEXT_LIMIT}")

    async def call_on() -> None:
        for _ in range(3_000):
            peer.call()
            await peer.stream.send_all(peer.h2.data_to_send())

    async with (
        serving(path, [ECHO.handled_by(refuse)]),
        connected(path) as peer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(call_on)
        await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert 0 < begun < 1_000


async def test_a_handler_in_a_shield_learns_that_its_peer_has_gone(path: Path) -> None:
    """It does not wait for ever where its cancellation cannot reach it."""
    held, told = Held(), trio.Event()

    async def talk_on(_: RegistrationStatus, send: Send[PluginInfo]) -> None:
        with trio.CancelScope(shield=True):
            held.entered.set()
            await held.let_go.wait()
            try:
                await send(PluginInfo())
            except StreamTerminatedError:
                told.set()

    async with serving(path, [WATCH.handled_by(talk_on)]), connected(path) as peer:
        number = peer.call(WATCH.path)
        await peer.flush()
        await held.entered.wait()
        peer.h2.reset_stream(number)
        await peer.flush()
        await wait_all_tasks_blocked(0.01)
        held.let_go.set()
        await told.wait()


async def test_a_stop_does_not_wait_for_unread_replies(path: Path) -> None:
    """A reply that the peer does not read is dropped."""
    endless = Endless()
    async with (
        serving(path, [WATCH.handled_by(endless)]) as (_, stop),
        connected(path) as peer,
    ):
        peer.h2.increment_flow_control_window(1 << 30)
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
        peer.call(WATCH.path)
        await peer.flush()
        await endless.begun.wait()
        await wait_all_tasks_blocked(0.01)
        stop.cancel()
    assert endless.ended.is_set()
