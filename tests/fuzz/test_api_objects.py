"""Any answer of the API server, or of a proxy before it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st

from dev.fuzz.values import anything, documents, encoded, expanded, mangled, spoilt
from tests.claims.node import DRIVER, POOL, board, ref
from trio_npu_dra.agent.claims.allocation import allocation_of, offers_of
from trio_npu_dra.agent.devices.build import build_pool
from trio_npu_dra.agent.devices.features import ServerFeatures
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.ascend.offers import offers
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import (
    DeviceTaint,
    KubeObject,
    Node,
    OwnerReference,
    ResourceClaim,
    ResourceSlice,
)
from trio_npu_dra.kit.api.parsing import _values
from trio_npu_dra.kit.base.errors import DriverError, KubeError
from trio_npu_dra.kit.pool import Pool, plan
from trio_npu_dra.kit.pool.stored_forms import StoredForms

T = TypeVar("T")

MESSAGE_LIMIT: Final = 2000
SECONDS: Final = 10.0
META: Final = {"name": "a", "namespace": "default", "uid": "uid-a", "resourceVersion": "5"}
OWNER: Final = {"apiVersion": "v1", "kind": "Node", "name": POOL, "uid": "u", "controller": True}
TAINT: Final = {"key": "a/fault", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
CONFIG: Final = {
    "source": "FromClaim",
    "requests": ["npu"],
    "opaque": {
        "driver": DRIVER,
        "parameters": {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"},
    },
}
CLAIM: Final = {
    "metadata": META,
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "npu", "driver": DRIVER, "pool": POOL, "device": "npu-1"},
                    {"request": "x/y", "driver": DRIVER, "pool": POOL, "device": "npu-2"},
                ],
                "config": [CONFIG],
            }
        }
    },
}
SLICE: Final = {
    "metadata": META | {"name": f"{POOL}-{DRIVER}-00000-abcde", "ownerReferences": [OWNER]},
    "spec": {
        "driver": DRIVER,
        "nodeName": POOL,
        "pool": {"name": POOL, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "npu-0",
                "attributes": {"type": {"string": "npu"}, "physicalId": {"int": 0}},
                "capacity": {"memCapacity": {"value": "32Gi"}},
                "taints": [TAINT],
            }
        ],
        "sharedCounters": [],
    },
}
EVENT: Final = {
    "metadata": META,
    "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": POOL, "uid": "u"},
    **dict.fromkeys(("type", "reason", "message", "firstTimestamp", "lastTimestamp"), "a"),
    "count": 1,
    "source": {"component": "a", "host": "a"},
    "reportingComponent": "a",
    "reportingInstance": "a",
}
KINDS: Final[dict[type[KubeObject], Any]] = {
    ResourceClaim: CLAIM,
    ResourceSlice: SLICE,
    Node: {"metadata": META},
    Event: EVENT,
}
STATUS: Final = {
    "kind": "Status",
    "code": 410,
    "message": "too old",
    "reason": "Expired",
    "details": {"name": "a", "kind": "resourceclaims", "group": "resource.k8s.io"},
}
HEADERS: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Api:
    """Answers each connection with given bytes and hangs up; made by `served`."""

    def __init__(self, socket: Path) -> None:
        self.credentials = Credentials(
            source="test", base_url="http://localhost", unix_socket=socket
        )
        self._socket = socket

    def ask(self, answer: bytes, call: Callable[[KubeClient], Awaitable[T]]) -> T | None:
        """The result of a call with an answer; None for an expected and short error."""
        outcome, words = trio.run(self._ask, answer, call)
        assert len(words) < MESSAGE_LIMIT
        return outcome

    async def _ask(
        self, answer: bytes, call: Callable[[KubeClient], Awaitable[T]]
    ) -> tuple[T | None, str]:
        self._socket.unlink(missing_ok=True)
        listening = trio.socket.socket(trio.socket.AF_UNIX)
        await listening.bind(str(self._socket))
        listening.listen()

        async def give(stream: trio.SocketStream) -> None:
            async with stream:
                try:
                    await stream.receive_some()
                    await stream.send_all(answer)
                except trio.BrokenResourceError:
                    pass  # the client has read enough

        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.serve_listeners, give, [trio.SocketListener(listening)])
                try:
                    async with open_client(self.credentials, deadline=SECONDS / 2) as client:
                        return await call(client), ""
                except KubeError as error:
                    return None, str(error)
                finally:
                    nursery.cancel_scope.cancel()


@pytest.fixture(scope="module")
def api(place: Path) -> Api:
    """An API server that gives the answers of a test."""
    return Api(place / "api.sock")


def whole(body: bytes, headers: bytes = HEADERS) -> bytes:
    """A whole answer."""
    return headers + b"Content-Length: %d\r\n\r\n" % len(body) + body


@given(body=documents(CLAIM))
def test_any_claim_is_planned_or_refused(api: Api, body: bytes) -> None:
    """That holds even if its allocation is absurd."""
    claim = api.ask(whole(expanded(body)), lambda client: client.get(ResourceClaim, "a", "default"))
    if claim is None:
        return
    try:
        allocation = allocation_of(claim, ref("a"), driver_name=DRIVER, pool_name=POOL)
        by_name = {offer.name: offer for offer in offers(board())}
        assert offers_of(allocation, pool_name=POOL, by_name=by_name, gaps=())
    except DriverError as error:
        str(error).encode()


@given(items=st.lists(spoilt(SLICE), max_size=3))
def test_any_stored_slices_can_be_replaced(api: Api, items: list[Any]) -> None:
    """For any stored slices there is a plan of writes, and it is JSON."""
    body = encoded({"metadata": {"resourceVersion": "7"}, "items": items})
    listed = api.ask(whole(expanded(body)), lambda client: client.list(ResourceSlice))
    if listed is None:
        return
    slices, _ = listed
    devices = build_pool(
        offers(board(2)), board(2), TaintPolicy.parse("", domain="a"), ServerFeatures()
    ).devices
    taint = DeviceTaint.model_validate(TAINT)
    wanted = Pool(
        driver=DRIVER,
        node_name=POOL,
        owner=OwnerReference.model_validate(OWNER),
        devices=tuple(one.model_copy(update={"taints": (taint,)}) for one in devices),
    )
    forms = StoredForms()
    for write in plan(slices, wanted, forms.as_stored):
        json.dumps(write.slice.to_wire()).encode()
        for stored in slices:
            forms.learn(write.slice.spec, stored.spec)
    plan(slices, wanted, forms.as_stored)


@given(
    kind=st.sampled_from(list(KINDS)),
    items=st.lists(st.sampled_from([*KINDS.values(), STATUS]).flatmap(spoilt), max_size=3),
    meta=spoilt({"resourceVersion": "5", "continue": ""}),
)
def test_any_list_is_objects_or_an_error(
    api: Api, kind: type[KubeObject], items: list[Any], meta: Any
) -> None:
    """The objects are of the requested kind, whether in pages, which may not go on, or not."""
    answer = whole(expanded(encoded({"metadata": meta, "items": items})))
    listed = api.ask(answer, lambda client: client.list(kind))
    if listed is not None:
        assert all(isinstance(one, kind) for one in listed[0])
        assert isinstance(listed[1], str)
    paged = api.ask(answer, lambda client: client.list_all(kind, page=2))
    if paged is not None:
        assert all(isinstance(one, kind) for one in paged.objects)
        assert all(len(one.title + one.why) < MESSAGE_LIMIT for one in paged.unread)


def values_in(value: Any) -> int:
    """How many values it has, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, inner))


@given(value=anything)
def test_the_budget_counts_values(value: Any) -> None:
    """No value is missed, and texts count once, whatever is in them."""
    assert values_in(value) <= _values(encoded(value)) <= 2 * values_in(value)


events = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", None]),
        "object": st.sampled_from([*KINDS.values(), STATUS]).flatmap(spoilt),
    }
)


@given(
    kind=st.sampled_from(list(KINDS)),
    lines=st.lists(events.map(encoded) | events.map(encoded).flatmap(mangled), max_size=4),
    version=st.text(max_size=8),
)
def test_any_watch_is_events_or_an_error(
    api: Api, kind: type[KubeObject], lines: list[bytes], version: str
) -> None:
    """The events are of the requested kind, each with the place from which a watch continues."""

    async def watch(client: KubeClient) -> None:
        async with client.watch(kind, resource_version=version) as told:
            async for event in told:
                assert event.object is None or isinstance(event.object, kind)
                assert isinstance(event.resource_version, str)

    api.ask(whole(b"\n".join(map(expanded, lines)) + b"\n"), watch)


refusals = st.builds(
    lambda status, headers, body: (
        b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n" % (status, len(body))
        + b"".join(b"%s: %s\r\n" % header for header in headers)
        + b"\r\n"
        + body
    ),
    status=st.integers(0, 999) | st.sampled_from([200, 401, 404, 409, 410, 422, 429, 500, 503]),
    headers=st.lists(
        st.tuples(
            st.sampled_from([b"Retry-After", b"Location", b"Content-Type", b"Transfer-Encoding"]),
            st.sampled_from(
                [
                    *(b"1", b"9" * 400, b"-1", b"chunked", b"application/json", b"\xff\xfe", b""),
                    b"Mon, 01 Jan 9999999 00:00:00 GMT",
                    b"Mon, 01 Jan 2026 99:00:00 +9999999",
                ]
            )
            | st.binary(max_size=8),
        ),
        max_size=3,
    ),
    body=documents(STATUS),
)


@given(answer=refusals | refusals.flatmap(mangled) | st.binary(max_size=60))
@example(answer=whole(b"{}", HEADERS + b"Content-Length: 0\r\n"))
def test_any_bytes_are_an_object_or_an_error(api: Api, answer: bytes) -> None:
    """HTTP and its content may be wrong; the client does not wait for ever."""
    node = api.ask(answer, lambda client: client.get(Node, "a"))
    assert node is None or isinstance(node, Node)
