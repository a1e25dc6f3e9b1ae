"""The gRPC that the kubelet is made with, at the other end of our sockets."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from dev.cluster.binaries import grpc_peer
from dev.grpc.serving import ECHO, HELLO, WATCH, Held, echo, serving
from dev.rig.waiting import listens, until
from tests.grpc.test_peers import METHODS, MUCH, answering
from trio_npu_dra.kit.grpc import (
    Channel,
    RpcError,
    Status,
    StreamMethod,
    UnaryMethod,
    open_channel,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

pytestmark = pytest.mark.cluster

HOLD = UnaryMethod("/test.Test/Hold", RegistrationStatus, PluginInfo)
REFUSE = UnaryMethod("/test.Test/Refuse", RegistrationStatus, PluginInfo)
NAMES = [
    f"stream:{method.path}" if isinstance(method, StreamMethod) else method.path
    for method in METHODS
]
"""Every method of every service, as the program takes them."""


@pytest.fixture(scope="module")
def program() -> Path:
    """The program, built if it was not yet."""
    return grpc_peer()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The socket between both."""
    return tmp_path / "grpc.sock"


async def test_its_client_calls_our_server_in_all_ways(program: Path, path: Path) -> None:
    """Each method; streams that are left, calls late and cancelled, 4 MiB, a thousand at once."""
    held = [Held(), Held(), Held()]
    by_name = {"late": held[0], "cancelled": held[1]}

    async def hold(request: RegistrationStatus) -> PluginInfo:
        return await by_name[request.error](request)

    async def refuse(request: RegistrationStatus) -> PluginInfo:
        raise RpcError(Status.NOT_FOUND, f"no {request.error}: ünknown")

    services = [
        *map(answering, METHODS),
        ECHO.handled_by(echo),
        WATCH.handled_by(held[2].watch),
        HOLD.handled_by(hold),
        REFUSE.handled_by(refuse),
    ]
    async with serving(path, services):
        await trio.run_process([program, "call", path, *NAMES])
        for each in held:
            await each.cancelled.wait()


@asynccontextmanager
async def its_server(
    program: Path, path: Path
) -> AsyncIterator[tuple[Channel, trio.abc.ReceiveStream]]:
    """Our channel to its server, which tells whose calls ended early."""
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.run_process, stdout=subprocess.PIPE, check=False)
            process: trio.Process = await nursery.start(serve, [program, "serve", path, *NAMES])
            assert process.stdout is not None
            await until(lambda: listens(path))
            async with open_channel(path) as channel:
                yield channel, process.stdout
            nursery.cancel_scope.cancel()


async def told(output: trio.abc.ReceiveStream, *methods: str) -> None:
    """Wait until the calls of these methods were cancelled there."""
    lines = b""
    while not all(f"cancelled {method}\n".encode() in lines for method in methods):
        lines += await output.receive_some()


async def test_our_client_calls_its_server_in_all_ways(program: Path, path: Path) -> None:
    """The same, the other way round."""
    async with its_server(program, path) as (channel, output):
        for method in METHODS:
            if isinstance(method, StreamMethod):
                async with channel.stream(method, method.request()) as replies:
                    assert [reply async for reply in replies] == [method.reply()] * 2
            else:
                reply = await channel.unary(method, method.request(), timeout_seconds=10)
                assert reply == method.reply()
        for method, status in (
            (REFUSE, "NOT_FOUND: no hello: ünknown"),
            (UnaryMethod("/test.Test/None", RegistrationStatus, PluginInfo), "UNIMPLEMENTED"),
        ):
            with pytest.raises(RpcError, match=status):
                await channel.unary(method, HELLO, timeout_seconds=10)
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await channel.unary(HOLD, HELLO, timeout_seconds=0.1)
        await told(output, HOLD.path)
        with trio.move_on_after(0.1):
            await channel.unary(HOLD, HELLO, timeout_seconds=10)
        async with channel.stream(WATCH, HELLO) as replies:
            assert (await anext(replies)).name == "hello"
        await told(output, HOLD.path, WATCH.path)

        async def ask(text: str) -> None:
            request = RegistrationStatus(error=text)
            assert (await channel.unary(ECHO, request, timeout_seconds=30)).name == text

        await ask(MUCH)
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, str(number))
