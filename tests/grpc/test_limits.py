"""The limits of one peer: whatever it does, the server serves other peers."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import suppress
from pathlib import Path

import h2.events
import pytest
import trio
from h2.errors import ErrorCodes
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.grpc.peer import MESSAGE, connected
from dev.grpc.serving import ECHO, HELLO, WATCH, Held, echo, serving
from trio_npu_dra.kit.grpc import (
    Channel,
    Limits,
    Route,
    RpcError,
    Status,
    Stream,
    open_channel,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus
from trio_npu_dra.kit.grpc.http2 import Protocol

TIGHT = Limits(look_seconds=0.01, newcomer_seconds=0)
ROUTES: list[Route] = [ECHO.handled_by(echo)]


async def called(channel: Channel) -> str:
    """A call that must succeed."""
    return (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name


async def test_a_newcomer_displaces_a_peer_without_calls(path: Path) -> None:
    """Of two silent peers the older one is displaced; a peer that has called before stays."""
    limits = TIGHT._replace(connections=3)
    async with serving(path, ROUTES, limits=limits) as (channel, _):
        assert await called(channel) == "hello"
        async with connected(path) as older, connected(path) as newer, open_channel(path) as other:
            await older.until(h2.events.RemoteSettingsChanged)
            await newer.until(h2.events.RemoteSettingsChanged)
            assert await called(other) == "hello"
            assert await older.end() is ErrorCodes.NO_ERROR
            newer.call()
            assert await newer.status() is Status.OK


async def test_a_newcomer_displaces_the_least_recently_used(path: Path) -> None:
    """That is a peer without a call; it may call again, and is then the newcomer."""
    limits = TIGHT._replace(connections=2)
    async with (
        serving(path, ROUTES, limits=limits),
        connected(path) as first,
        connected(path) as second,
        open_channel(path) as third,
    ):
        for peer in (first, second):
            peer.call()
            assert await peer.status() is Status.OK
        first.call()
        assert await first.status() is Status.OK
        assert await called(third) == "hello"
        assert await second.end() is ErrorCodes.NO_ERROR
        first.call()
        assert await first.status() is Status.OK


async def test_the_oldest_watch_stays(path: Path) -> None:
    """Watching peers displace each other, not the kubelet, which was there before them."""
    watching = Held()
    limits = TIGHT._replace(connections=2)
    async with (
        serving(path, [WATCH.handled_by(watching.watch)], limits=limits) as (channel, _),
        channel.stream(WATCH, HELLO) as replies,
    ):
        assert (await anext(replies)).name == "hello"
        async with connected(path) as one:
            one.call(WATCH.path)
            await one.until(h2.events.DataReceived)
            async with connected(path) as other:
                other.call(WATCH.path)
                await other.until(h2.events.DataReceived)
                await one.end()
            watching.let_go.set()
            with pytest.raises(StopAsyncIteration):
                await anext(replies)


async def test_busy_peers_lock_no_newcomer_out(path: Path) -> None:
    """A call succeeds even if calls that do not end take every place."""
    held = Held()
    routes: list[Route] = [ECHO.handled_by(echo), WATCH.handled_by(held.watch)]
    async with (
        serving(path, routes, limits=TIGHT._replace(connections=1)) as (channel, _),
        connected(path) as hog,
    ):
        hog.call(WATCH.path)
        await hog.until(h2.events.DataReceived)
        assert await called(channel) == "hello"
        await held.cancelled.wait()


async def test_a_newcomer_has_time_to_call(mock_clock: MockClock, path: Path) -> None:
    """The next peer waits until that time is over."""
    limits = TIGHT._replace(connections=1, newcomer_seconds=5)
    async with (
        serving(path, ROUTES, limits=limits),
        connected(path) as first,
        trio.open_nursery() as nursery,
    ):
        await first.until(h2.events.RemoteSettingsChanged)
        async with connected(path) as second:
            nursery.start_soon(second.until, h2.events.RemoteSettingsChanged)
            await wait_all_tasks_blocked(0.01)
            first.call()
            assert await first.status() is Status.OK
            mock_clock.jump(6)
            assert await first.end() is ErrorCodes.NO_ERROR


async def test_idle_connections_are_closed_but_for_the_last_used(
    mock_clock: MockClock, path: Path
) -> None:
    """So the kubelet's connection stays even without a watch, and forgotten ones do not."""
    limits = TIGHT._replace(idle_seconds=5, kept_idle=1)
    async with (
        serving(path, ROUTES, limits=limits) as (channel, _),
        connected(path) as older,
        connected(path) as newer,
    ):
        for peer in (older, newer):
            peer.call()
            assert await peer.status() is Status.OK
            mock_clock.jump(4)
        mock_clock.jump(4)
        assert await older.end() is ErrorCodes.NO_ERROR
        newer.call()
        assert await newer.status() is Status.OK
        assert await called(channel) == "hello"


@pytest.mark.parametrize("greeting", [b"", b"PRI * HTTP/2.0\r\n"])
async def test_a_peer_without_a_greeting_is_cut_off(path: Path, greeting: bytes) -> None:
    """A connection that sends nothing, or half of the greeting, ends."""
    async with (
        serving(path, ROUTES, limits=TIGHT._replace(greeting_seconds=0.05)),
        await trio.open_unix_socket(str(path)) as stream,
    ):
        await stream.send_all(greeting)
        while await stream.receive_some():
            pass


async def test_a_request_that_does_not_end_is_given_up(path: Path) -> None:
    """It ends after its time, with a status; the connection serves the next request."""
    async with (
        serving(path, ROUTES, limits=TIGHT._replace(request_seconds=0.05)),
        connected(path) as peer,
    ):
        for data in (b"", MESSAGE[:3], MESSAGE[:-1]):
            peer.call(data=data, end=False)
            assert await peer.status() is Status.DEADLINE_EXCEEDED
        peer.call()
        assert await peer.status() is Status.OK


async def test_the_largest_half_request_makes_room(path: Path) -> None:
    """The largest request of the peer with most is refused, not the newest."""
    limits = TIGHT._replace(half_sent_bytes=100, half_sent_cost=30)
    async with (
        serving(path, ROUTES, limits=limits),
        connected(path) as greedy,
        connected(path) as modest,
    ):
        for _ in range(2):
            greedy.call(data=MESSAGE[:-1], end=False)
        await greedy.until(h2.events.RemoteSettingsChanged)
        number = modest.call(data=MESSAGE[:-1], end=False)
        await modest.flush()
        greedy.call(data=b"", end=False)
        assert await greedy.status() is Status.RESOURCE_EXHAUSTED
        modest.h2.send_data(number, MESSAGE[-1:], end_stream=True)
        assert await modest.status() is Status.OK


async def test_a_request_that_is_reset_reaches_no_handler(path: Path) -> None:
    """Its bytes do not count any longer: more than a window of such requests gets through."""
    asked = list[str]()

    async def note(request: RegistrationStatus) -> PluginInfo:
        asked.append(request.error)
        return await echo(request)

    async with serving(path, [ECHO.handled_by(note)]), connected(path) as peer:
        for _ in range(10):
            number = peer.call(data=b"\0\0\1\0\0" + b"x" * 16_000, end=False)
            peer.h2.reset_stream(number)
            window = peer.h2.outbound_flow_control_window
            while window < 32_000:
                await peer.until(h2.events.WindowUpdated)
                window = peer.h2.outbound_flow_control_window
            await peer.flush()
        peer.h2.reset_stream(peer.call())  # whole, and reset before it is answered
        await peer.flush()
        peer.call()
        assert await peer.status() is Status.OK
    assert asked == ["hello"]


@pytest.mark.parametrize("how", ["given up", "taken back", "lost"])
async def test_half_a_request_leaves_nothing_behind(path: Path, *, how: str) -> None:
    """Its memory is free without the garbage collector."""
    limits = TIGHT._replace(request_seconds=0.05 if how == "given up" else 60)
    gc.disable()
    gc.freeze()
    try:
        async with serving(path, ROUTES, limits=limits) as (channel, _):
            async with connected(path) as peer:
                number = peer.call(data=MESSAGE[:-1], end=False)
                await peer.until(h2.events.RemoteSettingsChanged)
                if how == "given up":
                    assert await peer.status() is Status.DEADLINE_EXCEEDED
                elif how == "taken back":
                    peer.h2.reset_stream(number)
                    await peer.flush()
            assert await called(channel) == "hello"
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [one for one in gc.garbage if isinstance(one, Stream | Protocol)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()


async def test_resets_are_rationed(path: Path) -> None:
    """A peer that resets call after call is cut off, requests whole or not; others are served."""
    async with serving(path, ROUTES) as (channel, _), connected(path) as peer:
        for _ in range(200):
            peer.h2.reset_stream(peer.call())
        assert await peer.end() is ErrorCodes.ENHANCE_YOUR_CALM
        assert await called(channel) == "hello"


def frame(kind: int, payload: bytes = b"", *, stream: int = 0, size: int | None = None) -> bytes:
    """An HTTP/2 frame without flags, which may lie about its size."""
    length = len(payload) if size is None else size
    return length.to_bytes(3) + bytes((kind, 0)) + stream.to_bytes(4) + payload


@pytest.mark.parametrize(
    "nonsense",
    [
        pytest.param(frame(6, bytes(8)) * 3_000, id="pings"),
        pytest.param(frame(4) * 3_000, id="settings"),
        pytest.param(frame(2, bytes(4) + b"\1", stream=1) * 3_000, id="priorities"),
        pytest.param(frame(8, b"\0\0\0\1") * 3_000, id="windows"),
        pytest.param(frame(0x10, bytes(4) + b"u=3") * 3_000, id="unknown"),
        pytest.param(frame(4, bytes(6) * 50), id="many settings"),
        pytest.param(frame(0, stream=1, size=1 << 20), id="a frame of a megabyte"),
        pytest.param(frame(1, bytes(10_000), stream=1) + frame(9, bytes(10_000), stream=1)),
    ],
)
async def test_needless_frames_are_rationed(path: Path, nonsense: bytes) -> None:
    """They end the connection before the server handles or keeps them."""
    limits = Limits(frames_per_second=0)  # else a busy machine may give frames back
    async with (
        serving(path, ROUTES, limits=limits) as (channel, _),
        connected(path) as peer,
    ):
        await peer.flush()
        with suppress(trio.BrokenResourceError):  # cut off before all was sent
            await peer.stream.send_all(nonsense)
        assert await peer.end() is ErrorCodes.ENHANCE_YOUR_CALM
        assert await called(channel) == "hello"


async def test_answered_calls_are_not_rationed(path: Path) -> None:
    """Answered calls do not count: no number of them ends a connection."""
    limits = TIGHT._replace(frames=12, frames_per_second=0)
    async with serving(path, ROUTES, limits=limits) as (channel, _):
        for _ in range(12):
            assert await called(channel) == "hello"


async def test_the_streams_of_a_connection_are_limited(path: Path) -> None:
    """HTTP/2 tells the peer the number; more end the connection."""
    async with (
        serving(path, ROUTES, limits=TIGHT._replace(streams=2)),
        connected(path) as peer,
    ):
        for _ in range(3):
            peer.call(data=b"", end=False)
        assert await peer.end() is not None
        assert peer.h2.remote_settings.max_concurrent_streams == 2


async def test_the_watches_of_a_connection_are_limited(path: Path) -> None:
    """One more is refused, and the earlier ones go on."""
    async with (
        serving(path, [WATCH.handled_by(Held().watch)], limits=TIGHT._replace(watches=1)) as (
            channel,
            _,
        ),
        channel.stream(WATCH, HELLO) as first,
    ):
        assert (await anext(first)).name == "hello"
        async with channel.stream(WATCH, HELLO) as second:
            with pytest.raises(RpcError) as caught:
                await anext(second)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


async def test_a_server_without_descriptors_accepts_again(
    mock_clock: MockClock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers that came in the meantime are served a second after there is room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(path, ROUTES) as (channel, _):
        spare = os.open(os.devnull, os.O_RDONLY)  # the lowest that is free
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + 1, hard))
        try:
            async with connected(path) as peer:  # this has taken it
                await peer.flush()
                await wait_all_tasks_blocked(0.01)
                assert "cannot accept gRPC connections" in caplog.text
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                mock_clock.jump(2)
                peer.call()
                assert await peer.status() is Status.OK
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert await called(channel) == "hello"
