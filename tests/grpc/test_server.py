"""Calls over real unix sockets: their answers and their ends."""

from __future__ import annotations

import os
import resource
from functools import partial
from pathlib import Path

import h2.events
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from dev.grpc.peer import connected
from dev.grpc.serving import ECHO, HELLO, WATCH, Held, echo, serving
from trio_npu_dra.kit.grpc import (
    RpcError,
    Send,
    Status,
    open_channel,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus
from trio_npu_dra.kit.grpc.client import REPLY_BYTES
from trio_npu_dra.kit.grpc.server import LOCAL

GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The beginning of an HTTP/2 client: the preface and an empty SETTINGS frame."""


async def test_many_calls_run_side_by_side(path: Path) -> None:
    """64 calls of one connection are all in their handlers at the same time."""
    inside, answers = 0, list[str]()
    everyone = trio.Event()

    async def meet(request: RegistrationStatus) -> PluginInfo:
        nonlocal inside
        inside += 1
        if inside == 64:
            everyone.set()
        await everyone.wait()
        return PluginInfo(name=request.error)

    async def call(number: int) -> None:
        request = RegistrationStatus(error=str(number))
        answers.append((await channel.unary(ECHO, request, timeout_seconds=10)).name)

    async with (
        serving(path, [ECHO.handled_by(meet)]) as (channel, _),
        trio.open_nursery() as nursery,
    ):
        for number in range(64):
            nursery.start_soon(call, number)
    assert sorted(answers, key=int) == [str(number) for number in range(64)]


async def test_the_deadline_is_seen_and_cancels(mock_clock: MockClock, path: Path) -> None:
    """The caller's timeout is the handler's effective deadline, and cancels it when it passes."""
    held = Held()

    async def call() -> None:
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await channel.unary(ECHO, HELLO, timeout_seconds=5)

    async with (
        serving(path, [ECHO.handled_by(held)]) as (channel, _),
        trio.open_nursery() as nursery,
    ):
        now = trio.current_time()
        nursery.start_soon(call)
        await held.entered.wait()
        mock_clock.jump(6)
        await held.cancelled.wait()
    assert now + 4 < held.deadline <= now + 5


async def test_a_reset_call_is_cancelled(path: Path) -> None:
    """A caller that gives up (RST_STREAM) cancels the handler; other calls go on."""
    held = Held()
    async with serving(path, [ECHO.handled_by(held)]) as (channel, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(channel.unary, ECHO, HELLO, timeout_seconds=10))
            await held.entered.wait()
            nursery.cancel_scope.cancel()
        await held.cancelled.wait()
        held.let_go.set()
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"


async def test_a_lost_connection_cancels_its_calls(path: Path) -> None:
    """When a peer disappears, the handlers of its calls are cancelled."""
    held = Held()

    async def call() -> None:
        with pytest.raises(RpcError, match="UNAVAILABLE"):
            await channel.unary(ECHO, HELLO, timeout_seconds=10)

    async with serving(path, [ECHO.handled_by(held)]), trio.open_nursery() as nursery:
        async with open_channel(path) as channel:
            nursery.start_soon(call)
            await held.entered.wait()
        await held.cancelled.wait()


async def test_a_bug_is_the_callers_answer_and_the_logs_traceback(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler that raises gives INTERNAL, leaves a traceback and harms no other call."""

    async def broken(request: RegistrationStatus) -> PluginInfo:
        if request.error != "hello":
            raise KeyError(request.error)
        return await echo(request)

    async with serving(path, [ECHO.handled_by(broken)]) as (channel, _):
        with pytest.raises(RpcError, match="KeyError") as caught:
            await channel.unary(ECHO, RegistrationStatus(error="boom"), timeout_seconds=5)
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"
    assert caught.value.status is Status.INTERNAL
    assert [record.exc_info for record in caplog.records if record.exc_info]


async def test_a_handler_chooses_its_status(path: Path) -> None:
    """An RpcError from a handler is the answer, with its text."""

    async def refuse(request: RegistrationStatus) -> PluginInfo:
        raise RpcError(Status.NOT_FOUND, f"no {request.error}: ünknown")

    async with serving(path, [ECHO.handled_by(refuse)]) as (channel, _):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, HELLO, timeout_seconds=5)
    assert (caught.value.status, caught.value.message) == (
        Status.NOT_FOUND,
        "no hello: ünknown",
    )


async def test_an_unknown_method_is_unimplemented(path: Path) -> None:
    """An unknown method is refused with UNIMPLEMENTED, in the form of an answer."""
    async with serving(path, []) as (channel, _):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, HELLO, timeout_seconds=5)
    assert caught.value.status is Status.UNIMPLEMENTED


async def test_a_request_beyond_the_limit_is_refused_unread(path: Path) -> None:
    """A larger request gets RESOURCE_EXHAUSTED; the connection serves the next call."""
    large = RegistrationStatus(error="x" * LOCAL.message_bytes)
    async with serving(path, [ECHO.handled_by(echo)]) as (channel, _):
        with pytest.raises(RpcError) as caught:
            await channel.unary(ECHO, large, timeout_seconds=5)
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


async def test_large_messages_pass_up_to_the_limit(path: Path) -> None:
    """A message larger than a frame and than a window arrives whole, both ways."""
    text = "x" * (LOCAL.message_bytes - 16)

    async def repeat(request: RegistrationStatus) -> PluginInfo:
        return PluginInfo(name=request.error * 3)

    async with serving(path, [ECHO.handled_by(repeat)]) as (channel, _):
        reply = await channel.unary(ECHO, RegistrationStatus(error=text), timeout_seconds=10)
    assert reply.name == text * 3


async def test_a_reply_beyond_the_limit_is_refused_unread(path: Path) -> None:
    """It ends only its own call."""

    async def repeat(request: RegistrationStatus) -> PluginInfo:
        return PluginInfo(name=request.error * REPLY_BYTES)

    async with serving(path, [ECHO.handled_by(repeat)]) as (channel, _):
        with pytest.raises(RpcError, match="RESOURCE_EXHAUSTED"):
            await channel.unary(ECHO, RegistrationStatus(error="x"), timeout_seconds=10)
        empty = await channel.unary(ECHO, RegistrationStatus(), timeout_seconds=10)
    assert empty.name == ""


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


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        # A header block with the literal header "\xff\xff: \xff" on stream 1.
        GREETING + b"\0\0\6\1\5\0\0\0\1\0\2\xff\xff\1\xff",
    ],
    ids=["HTTP/1.1", "header bytes"],
)
async def test_bad_frames_cost_only_their_connection(
    path: Path, caplog: pytest.LogCaptureFixture, nonsense: bytes
) -> None:
    """Whatever peers send, their connections end, with one log line, and the others are served."""
    async with serving(path, [ECHO.handled_by(echo)]) as (channel, _):
        for _ in range(3):
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(nonsense)
                while await stream.receive_some():
                    pass
        assert caplog.messages == ["gRPC connection closed"]
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"


async def test_frames_of_unknown_types_are_ignored(path: Path) -> None:
    """As RFC 9113, 5.5 asks: extensions of HTTP/2 need not be agreed on."""
    priority_update = b"\0\0\7\x10\0\0\0\0\0\0\0\0\1u=3"  # RFC 9218, of stream 1
    of_nobody = b"\0\0\3\xfe\xff\0\0\0\1???"
    async with serving(path, [ECHO.handled_by(echo)]), connected(path) as peer:
        await peer.flush()
        await peer.stream.send_all(priority_update)
        peer.call(end=False)
        await peer.flush()
        await peer.stream.send_all(of_nobody)
        peer.h2.end_stream(1)
        assert await peer.status() is Status.OK


async def test_a_stream_carries_what_is_sent_until_it_ends(path: Path) -> None:
    """A stream's replies come in order, and its end ends the iteration."""

    async def count(request: RegistrationStatus, send: Send[PluginInfo]) -> None:
        for number in range(3):
            await send(PluginInfo(name=f"{request.error} {number}"))

    async with (
        serving(path, [WATCH.handled_by(count)]) as (channel, _),
        channel.stream(WATCH, HELLO) as replies,
    ):
        assert [reply.name async for reply in replies] == ["hello 0", "hello 1", "hello 2"]


async def test_leaving_a_stream_cancels_its_handler(path: Path) -> None:
    """A watcher that leaves cancels the handler that feeds it."""
    held = Held()
    async with serving(path, [WATCH.handled_by(held.watch)]) as (channel, _):
        async with channel.stream(WATCH, HELLO) as replies:
            assert (await anext(replies)).name == "hello"
        await held.cancelled.wait()


async def test_a_server_without_descriptors_accepts_again(
    mock_clock: MockClock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Peers that came in the meantime are served a second after there is room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(path, [ECHO.handled_by(echo)]) as (channel, _):
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
        assert (await channel.unary(ECHO, HELLO, timeout_seconds=5)).name == "hello"
