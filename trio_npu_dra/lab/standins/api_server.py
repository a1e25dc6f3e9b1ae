"""A small API server in this process: HTTP/1.1 over a unix socket or loopback TCP.

It has what this driver needs of Kubernetes: nodes, resourceslices, resourceclaims, events,
ConfigMaps, pods, their controllers and its version, under the real paths.
"""

from __future__ import annotations

import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import h11
import trio

from trio_npu_dra.lab.standins.api_state import KINDS, ApiState, InjectedFault, SeenRequest, Wire
from trio_npu_dra.lab.standins.api_status import ApiRefusal, NoSuchPath

_READ_SIZE: Final = 1 << 16
_JSON_HEADER: Final = ("content-type", "application/json")
_VERBS: Final = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "DELETE": "delete",
}
_ACCEPT_METADATA: Final = b"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_VERSION: Final = "/version"
_TEXT_HEADER: Final = ("content-type", "text/plain; charset=utf-8")


async def serve_api(
    state: ApiState,
    socket: Path,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *state* on a unix socket until cancelled; started once connections are accepted.

    A kubeconfig reaches it with `server: unix://<socket>`.
    """
    listener = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
    await listener.bind(str(socket))
    listener.listen()
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(
                trio.serve_listeners, _Handler(state).serve, [trio.SocketListener(listener)]
            )
            task_status.started()
    finally:
        socket.unlink(missing_ok=True)  # noqa: ASYNC240 - one quick syscall


async def serve_api_tls(
    state: ApiState,
    context: ssl.SSLContext,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *state* on loopback TCP with TLS until cancelled; started with the port."""
    listeners = await trio.open_ssl_over_tcp_listeners(
        0, context, host="127.0.0.1", https_compatible=True
    )
    socket_listener = listeners[0].transport_listener
    assert isinstance(socket_listener, trio.SocketListener)
    port: int = socket_listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, _Handler(state).serve, listeners)
        task_status.started(port)


class _Dropped(Exception):
    """The connection closes without a further answer."""


class _Handler:
    """Serves connections from one state."""

    def __init__(self, state: ApiState) -> None:
        self._state = state

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection, request after request."""
        connection = h11.Connection(h11.SERVER)
        try:
            while True:
                request, body = await _next_request(connection, stream)
                if request is None:
                    break
                await self._answer(connection, stream, request, body)
                connection.start_next_cycle()
        except (_Dropped, trio.BrokenResourceError, h11.ProtocolError):
            pass  # the peer is gone or leaves, or a test simulates that we are gone
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(
        self, connection: h11.Connection, stream: trio.abc.Stream, request: h11.Request, body: bytes
    ) -> None:
        call = _Call(request, body)
        self._state.requests.append(SeenRequest(verb=call.verb, path=call.path, query=call.query))
        fault = self._state.take_fault(call.verb)
        try:
            await _inject_before_answer(fault, stream)
            self._check(request, call)
            if call.verb == "watch":
                await self._watch(connection, stream, call)
                return
            status, answer = 201 if call.verb == "create" else 200, self._perform(call)
        except ApiRefusal as refusal:
            status, answer = refusal.code, refusal.to_wire()
        except NoSuchPath:
            await _send_whole(connection, stream, 404, b"404 page not found\n", [_TEXT_HEADER])
            return
        if fault is not None and fault.drop == "after":
            raise _Dropped
        headers = [_JSON_HEADER]
        if fault and fault.retry_after:
            headers.append(("retry-after", str(fault.retry_after)))
        await _send_whole(connection, stream, status, json.dumps(answer).encode(), headers)

    def _check(self, request: h11.Request, call: _Call) -> None:
        given = dict(request.headers).get(b"authorization", b"")
        if self._state.token is not None and given != b"Bearer " + self._state.token.encode():
            raise ApiRefusal(401, "Unauthorized", "Unauthorized")
        if call.path == _VERSION:
            return  # everybody may know it
        if not call.plural:
            raise NoSuchPath
        resource = "/".join(filter(None, (call.plural, call.subresource)))
        self._state.authorize(call.verb, resource, call.name)

    def _perform(self, call: _Call) -> Wire:
        match call.verb:
            case "get":
                return self._state.get(call.plural, call.namespace, call.name)
            case "list":
                return self._list(call)
            case "create":
                call.json.pop("status", None)  # the status has a path of its own
                if call.namespace:
                    call.json.setdefault("metadata", {}).setdefault("namespace", call.namespace)
                return self._state.create(call.plural, call.json, dry_run=call.dry_run)
            case "update":
                return self._state.update(call.plural, call.json)
            case "patch":
                manager = call.query["fieldManager"]
                return self._state.apply(call.plural, call.json, manager, call.subresource)
            case "delete":
                preconditions = call.json.get("preconditions", {})
                return self._state.delete(call.plural, call.namespace, call.name, preconditions)
        raise ApiRefusal(405, "MethodNotAllowed", f"the server does not allow {call.verb}")

    def _list(self, call: _Call) -> Wire:
        if call.path == _VERSION:
            return {"major": "1", "minor": str(self._state.kubernetes.minor)}
        found = self._state.list(
            call.plural,
            call.query.get("fieldSelector", ""),
            labels=call.query.get("labelSelector", ""),
            namespace=call.namespace,
            limit=int(call.query.get("limit", "0")),
            more=call.query.get("continue", ""),
        )
        return _metadata_alone(found) if call.wants_metadata else found

    async def _watch(
        self, connection: h11.Connection, stream: trio.abc.Stream, call: _Call
    ) -> None:
        head = h11.Response(
            status_code=200, headers=[_JSON_HEADER, ("transfer-encoding", "chunked")]
        )
        ends = self._state.watch_ends  # read before the head is sent: an end right after it counts
        await stream.send_all(connection.send(head))
        seconds = float(call.query.get("timeoutSeconds", "300"))
        with trio.move_on_after(seconds) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when, ends, scope)
                nursery.start_soon(_cancel_when_gone, stream, scope)
                await self._send_events(connection, stream, call)
                scope.cancel()
        await stream.send_all(connection.send(h11.EndOfMessage()))
        raise _Dropped  # input that the peer sent meanwhile was read and discarded

    async def _send_events(
        self, connection: h11.Connection, stream: trio.abc.Stream, call: _Call
    ) -> None:
        version = int(call.query.get("resourceVersion", "0"))
        selector = call.query.get("fieldSelector", "")
        labels = call.query.get("labelSelector", "")
        try:
            while True:
                for event in await self._state.changes(
                    call.plural, selector, version, labels=labels, namespace=call.namespace
                ):
                    version = int(event["object"]["metadata"]["resourceVersion"])
                    await _send_line(connection, stream, event)
        except ApiRefusal as refusal:
            await _send_line(connection, stream, {"type": "ERROR", "object": refusal.to_wire()})
        except trio.BrokenResourceError:
            return


class _Call:
    """The parts of a request: verb, resource, names."""

    def __init__(self, request: h11.Request, body: bytes) -> None:
        url = urlsplit(request.target.decode())
        self.path = url.path
        self.query = dict(parse_qsl(url.query))
        self.json: Any = json.loads(body) if body else {}
        self.wants_metadata = dict(request.headers).get(b"accept", b"") == _ACCEPT_METADATA
        self.plural, self.namespace, self.name, self.subresource = _resource(url.path)
        self.verb = self._verb(request.method.decode())

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"

    def _verb(self, method: str) -> str:
        if method == "GET" and not self.name:
            return "watch" if self.query.get("watch") == "true" else "list"
        if method == "PATCH" and "fieldManager" in self.query:
            return "patch"  # server-side apply, always by force
        return _VERBS.get(method, method)


def _metadata_alone(found: Wire) -> Wire:
    about = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
    return {
        **about,
        "kind": "PartialObjectMetadataList",
        "metadata": found["metadata"],
        "items": [{**about, "metadata": obj["metadata"]} for obj in found["items"]],
    }


def _resource(path: str) -> tuple[str, str, str, str]:
    """Plural, namespace, name and subresource of a path; unknown ones have an empty plural."""
    for plural, kind in KINDS.items():
        root = "/api/" if "/" not in kind.group_version else "/apis/"
        prefix = f"{root}{kind.group_version}/"
        if not path.startswith(prefix):
            continue
        parts = path.removeprefix(prefix).split("/")
        namespace = ""
        if kind.namespaced and parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        if parts[0] == plural:
            name, subresource, *_ = (*parts[1:], "", "")
            return plural, namespace, name, subresource
    return "", "", "", ""


async def _next_request(
    connection: h11.Connection, stream: trio.abc.Stream
) -> tuple[h11.Request | None, bytes]:
    request, body = None, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(bytes(await stream.receive_some(_READ_SIZE)))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return request, bytes(body)
        else:
            return None, b""


async def _send_whole(
    connection: h11.Connection,
    stream: trio.abc.Stream,
    status: int,
    body: bytes,
    headers: list[tuple[str, str]],
) -> None:
    head = h11.Response(status_code=status, headers=[*headers, ("content-length", str(len(body)))])
    data = connection.send(head)
    data += connection.send(h11.Data(data=body))
    data += connection.send(h11.EndOfMessage())
    await stream.send_all(data)


async def _inject_before_answer(fault: InjectedFault | None, stream: trio.abc.Stream) -> None:
    if fault is None:
        return
    if fault.hang:
        await stream.receive_some(1)  # until the peer gives up
        raise _Dropped
    if fault.drop == "before":
        raise _Dropped
    if fault.status is not None:
        raise ApiRefusal(fault.status, "Injected", f"injected status {fault.status}")


async def _cancel_when(event: trio.Event, scope: trio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


async def _cancel_when_gone(stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
    with suppress(trio.BrokenResourceError):
        await stream.receive_some(1)
    scope.cancel()


async def _send_line(connection: h11.Connection, stream: trio.abc.Stream, event: Wire) -> None:
    line = json.dumps(event).encode() + b"\n"
    await stream.send_all(connection.send(h11.Data(data=line)))
