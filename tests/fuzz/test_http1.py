"""Any bytes sent to an HTTP server of ours: the port of the pages, the control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import h11
import pytest
import trio
from anyio.from_thread import BlockingPortal
from hypothesis import given
from hypothesis import strategies as st

from dev.fuzz.sockets import send
from dev.fuzz.values import mangled
from tests.claims.node import board
from trio_npu_dra.agent.control.answers import Control
from trio_npu_dra.agent.holds.owner import Life
from trio_npu_dra.ascend.dcmi.worker import open_worker
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.offers import NO_PARTITIONS
from trio_npu_dra.ascend.subscription import WatchStatus
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.http import HttpRequest, HttpResponse, routed, serve_http

ANSWER_LIMIT: Final = 1 << 16
GOOD: Final = b"GET /hello?a=b HTTP/1.1\r\nHost: a\r\nAccept: text/plain\r\n\r\n"
ANSWER: Final = "/hello a=b text/plain\n"
PAGE_STATUSES: Final = {200, 404, 405, 409}
REFUSALS: Final = {400, 431, 501, 505}


async def hello(request: HttpRequest) -> HttpResponse:
    """A page that shows the request."""
    return HttpResponse(body=f"{request.path} {request.query} {request.accept}\n")


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[None]:
    """Serve the page and those of the control socket while inside."""
    async with open_worker() as worker, trio.open_nursery() as nursery:
        control = Control(
            life=Observable(Life.OWNS),
            board=Observable(board()),
            watch=Observable(WatchStatus()),
            features=Observable(None),
            worker=worker,
            faults=NodeFaults(None),
            holds=Observable(()),
            partitioning=Observable(NO_PARTITIONS),
            resources=Observable({}),
            waiting=Observable({}),
        )
        pages = {
            ("GET", "/hello"): hello,
            ("GET", "/health"): control.health,
            ("POST", "/release"): control.release,
        }
        await nursery.start(partial(serve_http, routed(pages), socket=path))
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def port(portal: BlockingPortal, place: Path) -> Iterator[Path]:
    """The socket of a server for all examples."""
    path = place / "http.sock"
    with portal.wrap_async_context_manager(served(path)):
        yield path


methods = st.sampled_from([b"GET", b"HEAD", b"POST", b"PRI", b"CONNECT", b"get", b""])
targets = st.sampled_from([b"/hello", b"/", b"*", b"/hello?", b"http://a/hello", b"/%00", b""])
targets |= st.sampled_from([b"/health", b"/release?device=npu-1", b"/release?device=%ff&a=b;c"])
targets |= st.binary(max_size=8).map(b"/release?device=".__add__)
targets |= st.sampled_from([b"/" * 20_000, b"/hello\xff"]) | st.binary(max_size=8)
versions = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9.9", b"HTTP/", b""])
names = st.sampled_from(
    [b"Host", b"Content-Length", b"Transfer-Encoding", b"Expect", b"Accept", b"Upgrade"]
) | st.binary(max_size=6)
values = st.sampled_from(
    [
        *(b"a", b"0", b"5", b"-1", b"9" * 30, b"chunked", b"100-continue", b"h2c"),
        *(b"", b"\xe9", b"x" * 9000),
    ]
) | st.binary(max_size=6)
ends = st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\r", b""])


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Something like a request, or several."""
    parts = []
    for _ in range(draw(st.integers(1, 2))):
        parts.append(b" ".join((draw(methods), draw(targets), draw(versions))) + draw(ends))
        fields = draw(st.lists(st.tuples(names, values), max_size=4))
        parts += [name + b": " + value + draw(ends) for name, value in fields]
        parts.append(draw(ends) + draw(st.sampled_from([b"", b"5\r\nhello\r\n0\r\n\r\n", GOOD])))
    return b"".join(parts)


@given(data=requests() | st.just(GOOD).flatmap(mangled) | st.binary(max_size=40))
def test_any_bytes_get_one_answer_or_none(port: Path, data: bytes) -> None:
    """The answer is HTTP, and the next client gets its page."""
    answer = send(port, data)
    assert len(answer) < ANSWER_LIMIT
    if answer:
        status = int(answer.removeprefix(b"HTTP/1.1 ")[:3])
        # The answer to a malformed request has a body, whatever its method would be.
        is_bodiless = status in PAGE_STATUSES and data.startswith(b"HEAD ")
        assert _status(answer, method="HEAD" if is_bodiless else "GET") == status
        assert status in PAGE_STATUSES | REFUSALS
    assert send(port, GOOD).endswith(f"\r\n\r\n{ANSWER}".encode())


def _status(answer: bytes, *, method: str) -> int:
    """The status of the one whole answer in some bytes."""
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(answer)
    parser.receive_data(b"")
    head = parser.next_event()
    assert isinstance(head, h11.Response)
    while not isinstance(parser.next_event(), h11.EndOfMessage):
        pass
    assert parser.trailing_data == (b"", True)
    return head.status_code
