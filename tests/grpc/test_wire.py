"""Callers unlike any client library: they send raw bytes and then only listen."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest
import trio

from trio_npu_dra.kit.grpc import Bridge, Status, UnaryMethod
from trio_npu_dra.kit.grpc._generated.pluginregistration import InfoRequest, PluginInfo

WAIT = UnaryMethod("/test.Test/Wait", InfoRequest, PluginInfo)


async def raw_call(path: Path, *, grpc_timeout: str, body: bytes) -> Status:
    """Call WAIT with a grpc-timeout as on the wire, such as `100m`; returns the server's status."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration())
    connection.initiate_connection()
    connection.send_headers(
        1,
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", WAIT.path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-timeout", grpc_timeout),
        ],
    )
    connection.send_data(1, body, end_stream=True)
    async with await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(connection.data_to_send())
        while data := await stream.receive_some():
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                    status = dict(event.headers or []).get(b"grpc-status")
                    if status is not None:
                        return Status(int(status))
            await stream.send_all(connection.data_to_send())
    raise AssertionError("the server hung up without a status")


async def call_of(
    handler: Callable[[InfoRequest], Awaitable[PluginInfo]], bridge: Bridge, path: Path
) -> Status:
    """Serve *handler* for one raw call with a timeout of 200 ms."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(bridge.serve_unix, path, [WAIT.handled_by(handler)]))
            status = await raw_call(path, grpc_timeout="200m", body=b"\0\0\0\0\0")
            nursery.cancel_scope.cancel()
    return status


async def test_a_passed_deadline_cancels_the_handler_and_is_answered(
    bridge: Bridge, path: Path
) -> None:
    """The handler ends at the deadline with DEADLINE_EXCEEDED, without a signal from the caller."""
    # A call whose deadline passes before its handler has begun never runs it: then both are empty.
    begun, cancelled = list[bool](), list[bool]()

    async def wait(_: InfoRequest) -> PluginInfo:
        begun.append(True)
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    assert await call_of(wait, bridge, path) is Status.DEADLINE_EXCEEDED
    assert begun == cancelled


@pytest.mark.parametrize("notices", [True, False])
async def test_a_shield_may_run_past_the_deadline(
    bridge: Bridge, path: Path, caplog: pytest.LogCaptureFixture, notices: bool
) -> None:
    """Cleanup beyond the deadline is finished; the answer is the same and the log stays quiet."""
    begun, finished = list[bool](), list[bool]()

    async def clean_up(_: InfoRequest) -> PluginInfo:
        begun.append(True)
        deadline = trio.current_effective_deadline()
        with trio.CancelScope(shield=True):
            await trio.sleep_until(deadline + 0.1)
        finished.append(True)
        if notices:
            await trio.lowlevel.checkpoint()
        return PluginInfo()

    assert await call_of(clean_up, bridge, path) is Status.DEADLINE_EXCEEDED
    assert begun == finished
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", Status.INTERNAL),
        (b"\0\0\0\0\5ab", Status.INTERNAL),
        (b"\1\0\0\0\0", Status.UNIMPLEMENTED),
    ],
    ids=["nothing", "too short", "compressed"],
)
async def test_a_broken_request_is_refused_without_a_traceback(
    bridge: Bridge, path: Path, caplog: pytest.LogCaptureFixture, body: bytes, status: Status
) -> None:
    """Anything but one plain message is the caller's error, and the handler never sees it."""

    async def never(_: InfoRequest) -> PluginInfo:
        raise AssertionError("called")

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(bridge.serve_unix, path, [WAIT.handled_by(never)]))
            assert await raw_call(path, grpc_timeout="10S", body=body) is status
            nursery.cancel_scope.cancel()
    assert not caplog.records
