"""Callers unlike any client library: they send raw bytes and then only listen."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from dev.grpc.peer import MESSAGE, connected
from dev.grpc.serving import ECHO, serving
from trio_npu_dra.kit.grpc import Status
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus


async def end_of_call(
    handler: Callable[[RegistrationStatus], Awaitable[PluginInfo]],
    path: Path,
    *,
    grpc_timeout: str = "200m",
    data: bytes = MESSAGE,
) -> Status:
    """Serve *handler* for one call with a timeout as on the wire, such as `200m`."""
    async with serving(path, [ECHO.handled_by(handler)]), connected(path) as peer:
        peer.call(data=data, grpc_timeout=grpc_timeout)
        return await peer.status()


async def test_a_passed_deadline_cancels_the_handler_and_is_answered(path: Path) -> None:
    """The handler ends at the deadline with DEADLINE_EXCEEDED, without a signal from the caller."""
    # A call whose deadline passes before its handler has begun never runs it: then both are empty.
    begun, cancelled = list[bool](), list[bool]()

    async def wait(_: RegistrationStatus) -> PluginInfo:
        begun.append(True)
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    assert await end_of_call(wait, path) is Status.DEADLINE_EXCEEDED
    assert begun == cancelled


@pytest.mark.parametrize("notices", [True, False])
async def test_a_shield_may_run_past_the_deadline(
    path: Path, caplog: pytest.LogCaptureFixture, notices: bool
) -> None:
    """Cleanup beyond the deadline is finished; the caller and the log see only the deadline."""
    begun, finished = list[bool](), list[bool]()

    async def clean_up(_: RegistrationStatus) -> PluginInfo:
        begun.append(True)
        deadline = trio.current_effective_deadline()
        with trio.CancelScope(shield=True):
            await trio.sleep_until(deadline + 0.1)
        finished.append(True)
        if notices:
            await trio.lowlevel.checkpoint()
        return PluginInfo()

    assert await end_of_call(clean_up, path) is Status.DEADLINE_EXCEEDED
    assert begun == finished
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"", Status.INTERNAL, id="nothing"),
        pytest.param(b"\0\0\0\0\5ab", Status.INTERNAL, id="too short"),
        pytest.param(b"\1\0\0\0\0", Status.UNIMPLEMENTED, id="compressed"),
        pytest.param(b"\0\0\0\0\3\x12\1\xff", Status.INTERNAL, id="no UTF-8"),
    ],
)
async def test_a_broken_request_is_refused_without_a_traceback(
    path: Path, caplog: pytest.LogCaptureFixture, data: bytes, status: Status
) -> None:
    """Anything but one plain message is the caller's error, and the handler never sees it."""

    async def never(_: RegistrationStatus) -> PluginInfo:
        raise AssertionError("called")

    assert await end_of_call(never, path, grpc_timeout="10S", data=data) is status
    assert not caplog.records
