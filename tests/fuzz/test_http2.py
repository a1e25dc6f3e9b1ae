"""Any bytes and frames sent to a gRPC socket."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from anyio.from_thread import BlockingPortal
from hpack import Encoder
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from dev.fuzz.sockets import SECONDS, send, served
from dev.fuzz.values import mangled
from dev.grpc.serving import ECHO, HELLO, WATCH, echo
from trio_npu_dra.kit.grpc import Channel, Route, Send
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo, RegistrationStatus

ANSWER_LIMIT: Final = 1 << 20
"""Bytes of all the server's answers to one example."""

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
REQUEST: Final = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", ECHO.path.encode()),
    (b":authority", b"localhost"),
    (b"content-type", b"application/grpc"),
    (b"te", b"trailers"),
    (b"grpc-timeout", b"1S"),
)
MESSAGE: Final = b"\0\0\0\0\7\x12\5hello"


@dataclass(frozen=True)
class Server:
    """A server of two methods."""

    portal: BlockingPortal
    path: Path
    channel: Channel

    def send(self, data: bytes) -> bytes:
        """Send bytes, give the server time to answer, then hang up."""
        return send(self.path, data, pause=partial(self.portal.call, wait_all_tasks_blocked, 0.002))

    def is_well(self) -> bool:
        """Whether a correct client gets its answer."""
        call = partial(self.channel.unary, ECHO, HELLO, timeout_seconds=SECONDS)
        return bool(self.portal.call(call).name == "hello")


async def watch(request: RegistrationStatus, reply: Send[PluginInfo]) -> None:
    """Answer twice."""
    await reply(PluginInfo(name=request.error))
    await trio.lowlevel.checkpoint()
    await reply(PluginInfo(name=request.error))


@pytest.fixture(scope="module")
def server(portal: BlockingPortal, place: Path) -> Iterator[Server]:
    """One server for all examples."""
    routes: list[Route] = [ECHO.handled_by(echo), WATCH.handled_by(watch)]
    path = place / "dra.sock"
    with portal.wrap_async_context_manager(served(path, routes)) as channel:
        yield Server(portal, path, channel)


def _four_bytes(number: int) -> bytes:
    return number.to_bytes(4, "big")


def frame(kind: int, flags: int, stream: int, payload: bytes, missing: int = 0) -> bytes:
    """A frame; its length field may be too large."""
    length = len(payload) + missing
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


headers = st.lists(
    st.sampled_from(REQUEST)
    | st.tuples(
        st.sampled_from([name for name, _ in REQUEST] + [b"", b"a", b"grpc-encoding", b":x"]),
        st.sampled_from([WATCH.path.encode(), b"/", b"", b"99999999H", b"1n", b"x" * 5000])
        | st.binary(max_size=8),
    ),
    max_size=10,
)
blocks = (
    st.just(Encoder().encode(REQUEST))
    | headers.map(lambda block: Encoder().encode(block))
    | st.lists(st.sampled_from(REQUEST), max_size=9, unique=True).map(Encoder().encode)
)
numbers = st.sampled_from([0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 1 << 14, 1 << 16, 100])
payloads = (
    blocks
    | st.just(MESSAGE)
    | st.binary(max_size=16)
    | numbers.map(_four_bytes)
    | st.lists(st.tuples(st.integers(0, 9), numbers), max_size=4).map(
        lambda pairs: b"".join(key.to_bytes(2, "big") + n.to_bytes(4, "big") for key, n in pairs)
    )
    | st.sampled_from(
        [bytes(8), b"\xff" * 5000, MESSAGE * 500, b"\0\xff\xff\xff\xff", bytes(20_000)]
    )
)
streams = st.integers(0, 7) | numbers
frames = st.builds(
    frame,
    st.integers(0, 10) | st.integers(0, 255),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x25]) | st.integers(0, 255),
    streams,
    payloads,
    st.sampled_from([0, 0, 0, 0, 1, 100, 1 << 14]),
)


def call(stream: int, block: bytes, body: bytes) -> bytes:
    """The frames of a call."""
    return frame(1, 4, stream, block) + frame(0, 1, stream, body)


good_block = st.just(Encoder().encode(REQUEST))
bodies = st.just(MESSAGE) | st.just(MESSAGE).flatmap(mangled)
calls = st.lists(st.tuples(good_block | good_block | blocks, bodies), min_size=1, max_size=4)
settled = frame(4, 0, 0, b"")
polite = st.builds(
    frame, st.just(8), st.just(0), st.sampled_from([0, 1, 3]), numbers.map(_four_bytes)
) | st.sampled_from(
    [
        settled,
        frame(4, 1, 0, b""),
        frame(4, 0, 0, b"\0\1\0\0\0\0" + b"\0\4\0\0\0\0"),  # no header table, no window
        frame(6, 0, 0, bytes(8)),
        frame(2, 0, 1, bytes(5)),
        frame(3, 0, 1, bytes(4)),
        frame(0x42, 0xFF, 9, b"new"),
    ]
)


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Calls that may be correct, and between them frames that are mostly wrong."""
    parts = [settled]
    for number, (block, body) in enumerate(draw(calls)):
        parts.append(call(2 * number + 1, block, body))
        parts += draw(st.lists(polite | polite | polite | frames, max_size=2))
    return PREFACE + b"".join(parts)


whole = conversations()


@given(data=whole | whole | whole | whole.flatmap(mangled) | st.binary(max_size=60))
def test_any_bytes_leave_a_server_that_answers(server: Server, data: bytes) -> None:
    """It hangs up on malformed input, and logs little."""
    assert len(server.send(data)) < ANSWER_LIMIT
    assert server.is_well()
