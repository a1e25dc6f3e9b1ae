"""Single connections: the bytes on them, and when one serves another request."""

import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.waiting import HANG_SECONDS, until
from tests.api.conftest import Serve
from trio_npu_dra.kit.api import connection
from trio_npu_dra.kit.api.bodies import OBJECT_LIMIT
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import BearerToken, Credentials
from trio_npu_dra.kit.api.objects import Node
from trio_npu_dra.kit.api.tls import Material, Tls
from trio_npu_dra.kit.api.transport import AT_ONCE, Transport
from trio_npu_dra.kit.base.errors import KubeError, Unreadable

NODE = "/api/v1/nodes/n"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"


@dataclass
class Peer:
    """A server that answers each request with an empty object.

    Attributes:
        answers: How many requests it answers on one connection before it hangs up.
        head: The beginning of each answer.
        requests: What came, by connection.
        may_answer: Has a permit for each request that may be answered.
    """

    answers: int = 1000
    head: bytes = HEAD
    requests: list[list[bytes]] = field(default_factory=list)
    may_answer: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(1000))
    closed: trio.Event = field(default_factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection; a request arrives in pieces: head, body."""
        served: list[bytes] = []
        self.requests.append(served)
        async with stream:
            while len(served) < self.answers:
                if not (data := await stream.receive_some()):
                    break
                if b"content-length" in data and data.endswith(b"\r\n\r\n"):
                    data += await stream.receive_some()
                served.append(data)
                await self.may_answer.acquire()
                await stream.send_all(self.head + b"\r\n{}")
        self.closed.set()


@pytest.fixture
def peer() -> Peer:
    """The server."""
    return Peer()


@pytest.fixture
async def connections(peer: Peer, serve: Serve) -> AsyncIterator[Transport]:
    """Connections to it, with a token and a prefix of all paths."""
    credentials = Credentials(
        source="test",
        base_url="http://[::1]:8080/k8s%20a",
        unix_socket=await serve(peer.serve),
        token=BearerToken(Material(field="token", data=b"secret")),
    )
    opened = Transport(credentials, deadline=30.0, user_agent="test")
    yield opened
    opened.end()


async def test_a_request_has_what_the_api_server_needs_and_no_more(
    connections: Transport, peer: Peer
) -> None:
    """The connection adds no header by itself."""
    await connections.ask("get", "GET", f"{NODE}?resourceVersion=0")
    await connections.ask("create", "POST", "/api/v1/nodes", b'{"a":1}')
    await connections.ask("apply", "PATCH", NODE, b"{}")
    always = (
        b"host: [::1]:8080\r\nuser-agent: test\r\naccept: application/json\r\n"
        b"authorization: Bearer secret\r\n"
    )
    async with aclosing(connections.stream("watch", "/w?watch=true", seconds=9)) as lines:
        assert [line async for line in lines] == [b""]
    (get, create, apply), (watch,) = peer.requests
    assert get == b"GET /k8s%20a/api/v1/nodes/n?resourceVersion=0 HTTP/1.1\r\n" + always + b"\r\n"
    assert create == (
        b"POST /k8s%20a/api/v1/nodes HTTP/1.1\r\n" + always + b"content-type: application/json\r\n"
        b'content-length: 7\r\n\r\n{"a":1}'
    )
    assert b"content-type: application/apply-patch+yaml\r\ncontent-length: 2\r\n\r\n{}" in apply
    assert watch == b"GET /k8s%20a/w?watch=true HTTP/1.1\r\n" + always + b"\r\n"


async def test_each_program_says_its_own_name(peer: Peer, serve: Serve) -> None:
    """The API server's audit log tells programs on the kit apart."""
    credentials = Credentials(
        source="test", base_url="http://localhost", unix_socket=await serve(peer.serve)
    )
    async with open_client(credentials, user_agent="lamps/1") as client:
        with pytest.raises(Unreadable):
            await client.get(Node, "n")
    assert b"\r\nuser-agent: lamps/1\r\n" in peer.requests[0][0]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_connection_that_the_server_has_closed_is_not_used_again(
    method: str, connections: Transport, peer: Peer
) -> None:
    """So nothing is lost with it, also not a write, which is never sent twice."""
    peer.answers = 1
    for _ in range(2):
        await connections.ask("ask", method, NODE, None if method == "GET" else b"{}")
        with trio.fail_after(HANG_SECONDS):
            await peer.closed.wait()
    assert [len(served) for served in peer.requests] == [1, 1]


async def test_a_connection_that_idles_too_long_is_not_used_again(
    connections: Transport, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server is about to close it."""
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.0)
    for _ in range(2):
        await connections.ask("get", "GET", NODE)
    assert [len(served) for served in peer.requests] == [1, 1]


@pytest.mark.parametrize(
    ("more", "expected"),
    [(b"", [2]), (b"connection: close\r\n", [1, 1])],
    ids=["stays open", "is to be closed"],
)
async def test_a_connection_is_used_again_unless_the_answer_forbids_it(
    more: bytes, expected: list[int], connections: Transport, peer: Peer
) -> None:
    """One that is not used again is not kept."""
    peer.head += more
    for _ in range(2):
        await connections.ask("get", "GET", NODE)
    assert [len(served) for served in peer.requests] == expected
    assert len(connections._idle) == (0 if more else 1)


async def test_requests_beyond_the_limit_wait_in_order(connections: Transport, peer: Peer) -> None:
    """Each is sent when another one has its answer, on that one's connection."""
    peer.may_answer = trio.Semaphore(0)

    def came() -> set[bytes]:
        return {data.split()[1] for served in peer.requests for data in served}

    async def are_sent(count: int) -> None:
        await until(lambda: len(came()) >= count)
        assert came() == {b"/k8s%%20a/%d" % number for number in range(count)}

    async with trio.open_nursery() as nursery:
        for number in range(AT_ONCE + 3):
            nursery.start_soon(connections.ask, "get", "GET", f"/{number}")
            await wait_all_tasks_blocked()
        for number in range(AT_ONCE, AT_ONCE + 3):
            await are_sent(number)
            peer.may_answer.release()
        await are_sent(AT_ONCE + 3)
        for _ in range(AT_ONCE):
            peer.may_answer.release()
    assert len(peer.requests) == AT_ONCE


async def test_a_refusal_keeps_the_connection(connections: Transport, peer: Peer) -> None:
    """A claim that does not exist costs no handshake."""
    peer.head = HEAD.replace(b"200 OK", b"404 Not Found")
    for _ in range(2):
        with pytest.raises(KubeError, match="HTTP 404"):
            await connections.ask("get", "GET", NODE)
    assert [len(served) for served in peer.requests] == [2]


async def test_what_follows_an_answer_is_no_answer_to_the_next_request(
    connections: Transport, peer: Peer
) -> None:
    """Whoever can put it there must not choose what a claim has."""
    peer.head = HEAD + b"\r\n{}" + HEAD
    for _ in range(2):
        assert await connections.ask("get", "GET", NODE) == b"{}"
    assert [len(served) for served in peer.requests] == [1, 1]


@pytest.mark.parametrize("with_tls", [True, False], ids=["TLS", "unix socket"])
async def test_what_fills_all_buffers_passes(
    with_tls: bool, pki: Path, serve: Serve, nursery: trio.Nursery
) -> None:
    """Both sides wait: for the socket to take more of a request, and for the rest of an answer."""
    body, answer = bytes(6 << 20), bytes(OBJECT_LIMIT)

    async def slowly(stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream) -> None:
        left = len(body)
        while left > 0:
            await trio.sleep(0.001)
            left -= len((await stream.receive_some(1 << 16)).rpartition(b"\r\n\r\n")[2])
        head = HEAD.replace(b"length: 2", b"length: %d" % len(answer)) + b"\r\n"
        for begin in range(0, len(answer), 1 << 16):
            await stream.send_all((b"" if begin else head) + answer[begin : begin + (1 << 16)])
            await trio.sleep(0.001)

    if with_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "server.crt", pki / "server.key")
        listen = partial(trio.serve_ssl_over_tcp, host="127.0.0.1", https_compatible=True)
        (listener,) = await nursery.start(listen, slowly, 0, context)
        port = listener.transport_listener.socket.getsockname()[1]
        tls = Tls(Material(field="CA", path=pki / "ca.crt"))
        credentials = Credentials(source="test", base_url=f"https://127.0.0.1:{port}", tls=tls)
    else:
        credentials = Credentials(
            source="test", base_url="http://localhost", unix_socket=await serve(slowly)
        )
    opened = Transport(credentials, deadline=HANG_SECONDS, user_agent="test")
    assert await opened.ask("create", "POST", "/x", body) == answer
    opened.end()
