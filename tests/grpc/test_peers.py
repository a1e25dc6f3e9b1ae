"""grpclib's own client and server, on asyncio, at the other end of our sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import grpclib.client
import grpclib.server
import pytest
import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from betterproto2.grpclib.grpclib_server import ServiceBase
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import GRPCError

from dev.grpc.serving import ECHO, HELLO, WATCH, Held, echo, serving
from trio_npu_dra.kit.grpc import (
    Channel,
    Route,
    RpcError,
    Send,
    Service,
    Status,
    StreamMethod,
    UnaryMethod,
    methods,
    open_channel,
)
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

ResultT = TypeVar("ResultT")
Call = Callable[[grpclib.client.Channel], Awaitable[ResultT]]

METHODS = [
    method for method in vars(methods).values() if isinstance(method, UnaryMethod | StreamMethod)
]
MUCH = "x" * ((4 << 20) - 16)
"""As much as gRPC lets a message have by default, without its head."""


class TalkBase(ServiceBase):
    """All kinds of calls, as betterproto2 generates a service for grpclib."""

    async def first(self, message: RegistrationStatus) -> PluginInfo:
        """Answer with the text."""
        raise NotImplementedError

    def repeat(self, message: RegistrationStatus) -> AsyncIterator[PluginInfo]:
        """Answer three times."""
        raise NotImplementedError

    async def join(self, messages: AsyncIterator[RegistrationStatus]) -> PluginInfo:
        """Answer once, with all texts."""
        raise NotImplementedError

    def chat(self, messages: AsyncIterator[RegistrationStatus]) -> AsyncIterator[PluginInfo]:
        """Answer each text as it comes."""
        raise NotImplementedError

    async def _rpc_first(self, stream: Any) -> None:
        request = await stream.recv_message()
        assert request is not None
        await stream.send_message(await self.first(request))

    async def _rpc_repeat(self, stream: Any) -> None:
        request = await stream.recv_message()
        assert request is not None
        await self._call_rpc_handler_server_stream(self.repeat, stream, request)

    async def _rpc_join(self, stream: Any) -> None:
        await stream.send_message(await self.join(stream.__aiter__()))

    async def _rpc_chat(self, stream: Any) -> None:
        await self._call_rpc_handler_server_stream(self.chat, stream, stream.__aiter__())

    def __mapping__(self) -> Mapping[str, Handler]:
        """Its methods."""
        kinds = {
            "first": (self._rpc_first, Cardinality.UNARY_UNARY),
            "repeat": (self._rpc_repeat, Cardinality.UNARY_STREAM),
            "join": (self._rpc_join, Cardinality.STREAM_UNARY),
            "chat": (self._rpc_chat, Cardinality.STREAM_STREAM),
        }
        return {
            f"/test.Talk/{name}": Handler(function, kind, RegistrationStatus, PluginInfo)
            for name, (function, kind) in kinds.items()
        }


class Talk(TalkBase):
    """A service, as one writes it for grpclib."""

    async def first(self, message: RegistrationStatus) -> PluginInfo:
        """Refuse what is no greeting."""
        if message != HELLO:
            raise GRPCError(Status.FAILED_PRECONDITION, f"no {message.error}: ünknown")
        return PluginInfo(name=message.error)

    async def repeat(self, message: RegistrationStatus) -> AsyncIterator[PluginInfo]:
        """Three answers."""
        for _ in range(3):
            yield PluginInfo(name=message.error)

    async def join(self, messages: AsyncIterator[RegistrationStatus]) -> PluginInfo:
        """One answer."""
        return PluginInfo(name=" ".join([message.error async for message in messages]))

    async def chat(self, messages: AsyncIterator[RegistrationStatus]) -> AsyncIterator[PluginInfo]:
        """As many answers."""
        async for message in messages:
            yield PluginInfo(name=message.error)


def stub(channel: grpclib.client.Channel, name: str, kind: type[Any]) -> Any:
    """Grpclib's view of one method of Talk."""
    return kind(channel, f"/test.Talk/{name}", RegistrationStatus, PluginInfo)


def said(*texts: str) -> list[RegistrationStatus]:
    """Requests."""
    return [RegistrationStatus(error=text) for text in texts]


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    """asyncio, in a thread of its own."""
    with start_blocking_portal("asyncio") as opened:
        yield opened


@pytest.fixture
def call(portal: BlockingPortal, path: Path) -> Callable[[Call[Any]], Awaitable[Any]]:
    """Runs something with grpclib's client of the socket, and waits for it."""

    async def with_channel(function: Call[Any]) -> Any:
        async with grpclib.client.Channel(path=str(path)) as channel:
            return await function(channel)

    async def run(function: Call[Any]) -> Any:
        return await trio.to_thread.run_sync(portal.call, with_channel, function)

    return run


# --- grpclib's client, our server -----------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
async def test_grpclibs_client_calls_each_method(
    call: Callable[[Call[Any]], Awaitable[Any]],
    path: Path,
    method: UnaryMethod[Any, Any] | StreamMethod[Any, Any],
) -> None:
    """It gets what the handler sends."""
    unary = isinstance(method, UnaryMethod)
    kind = grpclib.client.UnaryUnaryMethod if unary else grpclib.client.UnaryStreamMethod

    async def ask(channel: grpclib.client.Channel) -> Any:
        return await kind(channel, method.path, method.request, method.reply)(
            method.request(), timeout=10
        )

    async with serving(path, [answering(method)]):
        reply = await call(ask)
    assert reply == (method.reply() if unary else [method.reply()] * 2)


async def test_a_service_of_grpclib_is_served(
    call: Callable[[Call[Any]], Awaitable[Any]], path: Path
) -> None:
    """All kinds of calls, and an error with its text."""

    async def talk(channel: grpclib.client.Channel) -> None:
        first = stub(channel, "first", grpclib.client.UnaryUnaryMethod)
        assert (await first(HELLO, timeout=9, metadata={"asked": "so"})).name == "hello"
        with pytest.raises(GRPCError) as caught:
            await first(RegistrationStatus(error="bye"))
        assert caught.value.status is Status.FAILED_PRECONDITION
        assert caught.value.message == "no bye: ünknown"
        repeat = stub(channel, "repeat", grpclib.client.UnaryStreamMethod)
        assert [reply.name for reply in await repeat(HELLO)] == ["hello"] * 3
        join = stub(channel, "join", grpclib.client.StreamUnaryMethod)
        assert (await join(said("a", "b", "c"))).name == "a b c"
        assert (await join([])).name == ""
        chat = stub(channel, "chat", grpclib.client.StreamStreamMethod)
        async with chat.open() as stream:
            for text in ("a", "b"):
                await stream.send_message(RegistrationStatus(error=text))
                assert (await stream.recv_message()).name == text
            await stream.end()
            assert await stream.recv_message() is None

    async with serving(path, [Talk()]):
        await call(talk)


async def test_grpclibs_client_cancels_and_is_late(
    call: Callable[[Call[Any]], Awaitable[Any]], path: Path
) -> None:
    """Either cancels the handler; the connection goes on."""
    held = Held()

    async def late(channel: grpclib.client.Channel) -> None:
        echo_it = grpclib.client.UnaryUnaryMethod(
            channel, ECHO.path, RegistrationStatus, PluginInfo
        )
        with pytest.raises(TimeoutError):
            await echo_it(HELLO, timeout=0.1)
        watch = grpclib.client.UnaryStreamMethod(
            channel, WATCH.path, RegistrationStatus, PluginInfo
        )
        async with watch.open() as stream:
            await stream.send_message(HELLO, end=True)
            assert await stream.recv_message() == PluginInfo(name="hello")
            await stream.cancel()

    async with serving(path, [ECHO.handled_by(held), WATCH.handled_by(held.watch)]):
        await call(late)
        await held.cancelled.wait()


async def test_grpclibs_client_sends_and_gets_much(
    call: Callable[[Call[Any]], Awaitable[Any]], path: Path
) -> None:
    """4 MiB each way, and a thousand calls at once over one connection."""

    async def much(channel: grpclib.client.Channel) -> None:
        echo_it = grpclib.client.UnaryUnaryMethod(
            channel, ECHO.path, RegistrationStatus, PluginInfo
        )
        assert (await echo_it(RegistrationStatus(error=MUCH))).name == MUCH
        texts = [str(number) for number in range(1000)]
        replies = await asyncio.gather(*map(echo_it, said(*texts)))
        assert [reply.name for reply in replies] == texts

    async with serving(path, [ECHO.handled_by(echo)]):
        await call(much)


# --- our client, grpclib's server -----------------------------------------------------------------


@asynccontextmanager
async def grpclibs_server(
    portal: BlockingPortal, path: Path, *services: Service
) -> AsyncIterator[Channel]:
    """Our channel to a server of grpclib."""

    async def begin() -> grpclib.server.Server:
        server = grpclib.server.Server(services)
        await server.start(path=str(path))
        return server

    async def end(server: grpclib.server.Server) -> None:
        server.close()
        await server.wait_closed()

    with trio.fail_after(30):
        server = await trio.to_thread.run_sync(portal.call, begin)
        try:
            async with open_channel(path) as channel:
                yield channel
        finally:
            await trio.to_thread.run_sync(portal.call, end, server)


def answering(method: UnaryMethod[Any, Any] | StreamMethod[Any, Any]) -> Route:
    """Answers a method with an empty reply, or with two; for both servers."""

    async def unary(_: Any) -> Any:
        return method.reply()

    async def stream(_: Any, send: Send[Any]) -> None:
        await send(method.reply())
        await send(method.reply())

    if isinstance(method, UnaryMethod):
        return method.handled_by(unary)
    return method.handled_by(stream)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
async def test_our_client_calls_each_method_of_grpclibs_server(
    portal: BlockingPortal, path: Path, method: UnaryMethod[Any, Any] | StreamMethod[Any, Any]
) -> None:
    """It gets what the handler sends."""
    async with grpclibs_server(portal, path, answering(method)) as channel:
        if isinstance(method, UnaryMethod):
            reply = await channel.unary(method, method.request(), timeout_seconds=10)
            assert reply == method.reply()
        else:
            async with channel.stream(method, method.request()) as replies:
                assert [reply async for reply in replies] == [method.reply()] * 2


async def test_our_client_meets_errors_and_leaves(portal: BlockingPortal, path: Path) -> None:
    """A status with its text, a deadline, an unknown method, a stream that is left."""
    turns = count()
    left = trio.Event()
    token = trio.lowlevel.current_trio_token()

    async def refuse_or_wait(request: RegistrationStatus) -> PluginInfo:
        if next(turns):
            await asyncio.sleep(60)
        raise GRPCError(Status.NOT_FOUND, f"no {request.error}: ünknown")

    async def watch(_: RegistrationStatus, send: Send[PluginInfo]) -> None:
        try:
            while True:
                await send(PluginInfo(name="hello"))
                await asyncio.sleep(0.01)
        finally:
            token.run_sync_soon(left.set)

    services = ECHO.handled_by(refuse_or_wait), WATCH.handled_by(watch)
    async with grpclibs_server(portal, path, *services) as channel:
        with pytest.raises(RpcError, match="NOT_FOUND: no hello: ünknown"):
            await channel.unary(ECHO, HELLO, timeout_seconds=10)
        with pytest.raises(RpcError, match="DEADLINE_EXCEEDED"):
            await channel.unary(ECHO, HELLO, timeout_seconds=0.1)
        with pytest.raises(RpcError, match="UNIMPLEMENTED"):
            await channel.unary(methods.GET_INFO, methods.GET_INFO.request(), timeout_seconds=10)
        async with channel.stream(WATCH, HELLO) as replies:
            assert (await anext(replies)).name == "hello"
        await left.wait()


async def test_our_client_sends_and_gets_much(portal: BlockingPortal, path: Path) -> None:
    """4 MiB each way, and a thousand calls at once over one connection."""

    async def echo_it(request: RegistrationStatus) -> PluginInfo:
        return PluginInfo(name=request.error)

    async def ask(channel: Channel, text: str) -> None:
        request = RegistrationStatus(error=text)
        assert (await channel.unary(ECHO, request, timeout_seconds=30)).name == text

    async with grpclibs_server(portal, path, ECHO.handled_by(echo_it)) as channel:
        await ask(channel, MUCH)
        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(ask, channel, str(number))


async def test_our_client_reads_what_came_before_a_reset(
    portal: BlockingPortal, path: Path
) -> None:
    """Then it learns of the reset."""

    async def give_up(stream: Any) -> None:
        await stream.send_message(PluginInfo(name="once"))
        await stream.cancel()

    handler = Handler(give_up, Cardinality.UNARY_STREAM, RegistrationStatus, PluginInfo)
    async with (
        grpclibs_server(portal, path, Route(WATCH.path, handler)) as channel,
        channel.stream(WATCH, HELLO) as replies,
    ):
        assert (await anext(replies)).name == "once"
        with pytest.raises(RpcError, match="UNAVAILABLE"):
            await anext(replies)
