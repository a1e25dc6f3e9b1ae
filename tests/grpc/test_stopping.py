"""The stop of a server, its calls during the stop, and the owner of the socket."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from trio.testing import wait_all_tasks_blocked

from dev.grpc.peer import connected
from dev.grpc.serving import ECHO, HELLO, WATCH, Held, echo, serving
from trio_npu_dra.kit.grpc import Route, RpcError, is_refused, open_channel
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus


async def test_a_socket_that_cannot_be_removed_stops_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls in flight finish, no new peer can connect, and the log names the file."""
    held, answers = Held(), list[str]()

    async def call() -> None:
        answers.append((await channel.unary(ECHO, HELLO, timeout_seconds=10)).name)

    def refuse(_: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), missing_ok)

    async with (
        serving(path, [ECHO.handled_by(held)], grace_seconds=15) as (channel, stop),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(call)
        await held.entered.wait()
        monkeypatch.setattr(Path, "unlink", refuse)
        stop.cancel()
        await wait_all_tasks_blocked()
        held.let_go.set()
    assert answers == ["hello"]
    assert is_refused(path)
    assert [vars(record)["path"] for record in caplog.records] == [str(path)]


async def test_a_stop_cancels_what_outlasts_the_grace(path: Path) -> None:
    """Calls and streams that do not end by themselves are cancelled, and the stop completes."""
    held, watching = Held(), Held()

    async def call() -> None:
        with pytest.raises(RpcError, match="UNAVAILABLE"):
            await channel.unary(ECHO, HELLO, timeout_seconds=15)

    async def watch() -> None:
        async with channel.stream(WATCH, HELLO) as replies:
            assert (await anext(replies)).name == "hello"
            with pytest.raises(RpcError, match="UNAVAILABLE"):
                await anext(replies)

    routes: list[Route] = [ECHO.handled_by(held), WATCH.handled_by(watching.watch)]
    async with (
        serving(path, routes, grace_seconds=0.1) as (channel, stop),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(call)
        nursery.start_soon(watch)
        await held.entered.wait()
        await watching.entered.wait()
        stop.cancel()
    assert held.cancelled.is_set()
    assert watching.cancelled.is_set()


async def test_a_call_that_comes_after_the_others_were_cancelled_does_not_begin(path: Path) -> None:
    """A stop that waits for cleanup ends all the same; a peer cannot go on calling."""
    held, cleaned_up, calls = Held(), trio.Event(), list[str]()

    async def clean_up(request: RegistrationStatus) -> PluginInfo:
        calls.append(request.error)
        try:
            return await held(request)
        finally:
            with trio.CancelScope(shield=True):
                await cleaned_up.wait()

    async with (
        serving(path, [ECHO.handled_by(clean_up)]) as (_, stop),
        connected(path) as peer,
    ):
        peer.call()
        await peer.flush()
        await held.entered.wait()
        stop.cancel()
        await held.cancelled.wait()
        peer.call()
        await peer.flush()
        await wait_all_tasks_blocked()
        cleaned_up.set()
    assert calls == ["hello"]


async def test_a_stop_hangs_up_on_idle_peers(path: Path) -> None:
    """A kubelet that keeps its connection does not hold up a stop, and is notified of it."""
    async with (
        serving(path, [ECHO.handled_by(echo)]) as (_, stop),
        connected(path) as peer,
    ):
        await peer.until(h2.events.RemoteSettingsChanged)
        stop.cancel()
        assert await peer.end() is ErrorCodes.NO_ERROR


async def test_the_channel_finds_the_next_server(path: Path) -> None:
    """After a restart of the server the same channel connects again."""
    async with open_channel(path) as channel:
        for _ in range(2):
            async with serving(path, [ECHO.handled_by(echo)]):
                assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"
            with pytest.raises(RpcError, match="UNAVAILABLE"):
                await channel.unary(ECHO, HELLO, timeout_seconds=5)


async def test_a_successors_socket_is_left_alone(path: Path) -> None:
    """A server that stops after another has taken its path leaves the other's socket."""
    async with (
        serving(path, []) as (_, stop),
        serving(path, [ECHO.handled_by(echo)]) as (channel, _),
    ):
        stop.cancel()
        await wait_all_tasks_blocked()
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"
