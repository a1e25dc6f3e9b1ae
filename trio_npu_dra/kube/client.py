"""The verbs of the API server that this driver uses, on typed objects."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError

from trio_npu_dra import __version__
from trio_npu_dra.errors import Unavailable
from trio_npu_dra.kube.answers import Status, refusal
from trio_npu_dra.kube.connections import Connections
from trio_npu_dra.kube.credentials import Credentials
from trio_npu_dra.kube.objects import KubeObject, ObjectMeta

K = TypeVar("K", bound=KubeObject)

REQUEST_DEADLINE: Final = 10.0
WATCH_SECONDS: Final = 290
"""How long one watch lasts before the API server ends it."""
_SILENCE_MARGIN: Final = 15.0


class EventType(StrEnum):
    """What a watch tells of an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent(Generic[K]):
    """One change.

    Attributes:
        type: Never `ERROR`: that one is raised.
        object: The object after the change (before it, when deleted); `None` for a bookmark.
        resource_version: Where a later watch can continue.
    """

    type: EventType
    object: K | None
    resource_version: str


class _ListMeta(BaseModel):
    resourceVersion: str = ""  # noqa: N815


class _List(BaseModel):
    metadata: _ListMeta
    items: list[Any] | None = None


class _RawEvent(BaseModel):
    type: EventType
    object: dict[str, Any]


class _Bookmark(BaseModel):
    metadata: ObjectMeta


class KubeClient:
    """Typed access to one API server; made by `open_client`.

    Each request ends within the client's deadline. Cancelling a request at any point leaves the
    client usable.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K:
        """Read one object.

        Raises:
            NotFound: It does not exist.
            KubeError: Refused or unreachable.
        """
        asked = f"get {_words(kind, name, namespace)}"
        return _parsed(
            kind, asked, await self._connections.ask(asked, "GET", _path(kind, namespace, name))
        )

    async def list(self, kind: type[K], *, field_selector: str = "") -> tuple[tuple[K, ...], str]:
        """Read all objects of a kind that the selector admits, in all namespaces.

        Returns:
            The objects, and the resourceVersion from which a watch continues.

        Raises:
            KubeError: Refused or unreachable.
        """
        asked = f"list {kind.plural} {field_selector}".rstrip()
        path = _path(kind) + _query(fieldSelector=field_selector)
        body = await self._connections.ask(asked, "GET", path)
        try:
            answer = _List.model_validate_json(body)
            items = tuple(kind.model_validate(item) for item in answer.items or ())
        except ValidationError as error:
            raise _not_understood(asked, error) from error
        return items, answer.metadata.resourceVersion

    async def create(self, obj: K, *, dry_run: bool = False) -> K:
        """Create an object; with *dry_run* the answer shows what would be stored.

        Sent once: when the answer is lost, whether the object exists is not known.

        Raises:
            Conflict: One of that name exists.
            Invalid: The API server's validation refused it.
            KubeError: Refused or unreachable.
        """
        meta = obj.metadata
        name = meta.name or f"{meta.generate_name}*"
        asked = f"create {_words(type(obj), name, meta.namespace)}"
        path = _path(type(obj), meta.namespace) + _query(dryRun="All" if dry_run else "")
        return _parsed(
            type(obj),
            asked,
            await self._connections.ask(asked, "POST", path, _encoded(obj.to_wire())),
        )

    async def update(self, obj: K) -> K:
        """Replace an object; its resourceVersion, when given, must still be the stored one.

        Raises:
            Conflict: It changed since it was read.
            NotFound: It does not exist any more.
            Invalid: The API server's validation refused it.
            KubeError: Refused or unreachable.
        """
        meta = obj.metadata
        asked = f"update {_words(type(obj), meta.name, meta.namespace)}"
        return _parsed(
            type(obj),
            asked,
            await self._connections.ask(
                asked, "PUT", _path(type(obj), meta.namespace, meta.name), _encoded(obj.to_wire())
            ),
        )

    async def delete(
        self,
        kind: type[KubeObject],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object, given that it still is the one with *uid* and *resource_version*.

        Raises:
            NotFound: It does not exist.
            Conflict: It is another one, or changed.
            KubeError: Refused or unreachable.
        """
        asked = f"delete {_words(kind, name, namespace)}"
        given = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in given.items() if value is not None},
        }
        await self._connections.ask(
            asked, "DELETE", _path(kind, namespace, name), _encoded(options)
        )

    @asynccontextmanager
    async def watch(
        self, kind: type[K], *, field_selector: str = "", resource_version: str
    ) -> AsyncIterator[AsyncIterator[WatchEvent[K]]]:
        """Follow changes after *resource_version*; entered once the API server accepted.

        The iterator ends when the API server ends the watch, after `WATCH_SECONDS` at most.

        Raises:
            Gone: *resource_version* is too old: list again.
            KubeError: Refused, broken or silent.
        """
        asked = f"watch {kind.plural} {field_selector}".rstrip()
        path = _path(kind) + _query(
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
            resourceVersion=resource_version,
            fieldSelector=field_selector,
        )
        silence = WATCH_SECONDS + _SILENCE_MARGIN
        async with aclosing(self._connections.stream(asked, path, silence=silence)) as lines:
            await anext(lines)
            async with aclosing(_events(kind, asked, lines)) as events:
                yield events


@asynccontextmanager
async def open_client(
    credentials: Credentials, *, deadline: float = REQUEST_DEADLINE
) -> AsyncIterator[KubeClient]:
    """A client whose connections are closed at the end of the block.

    Args:
        credentials: Server and identity.
        deadline: Seconds that one request may take in all.
    """
    connections = Connections(
        credentials, deadline=deadline, user_agent=f"trio-npu-dra/{__version__}"
    )
    try:
        yield KubeClient(connections)
    finally:
        await connections.end()


async def _events(
    kind: type[K], asked: str, lines: AsyncIterator[bytes]
) -> AsyncGenerator[WatchEvent[K], None]:
    async for line in lines:
        try:
            raw = _RawEvent.model_validate_json(line)
            if raw.type is EventType.ERROR:
                status = Status.model_validate(raw.object)
                raise refusal(asked, status.code, json.dumps(raw.object).encode())
            if raw.type is EventType.BOOKMARK:
                obj, metadata = None, _Bookmark.model_validate(raw.object).metadata
            else:
                obj = kind.model_validate(raw.object)
                metadata = obj.metadata
        except ValidationError as error:
            raise _not_understood(asked, error) from error
        yield WatchEvent(
            type=raw.type, object=obj, resource_version=metadata.resource_version or ""
        )


def _path(kind: type[KubeObject], namespace: str | None = None, name: str = "") -> str:
    root = "/api/" if "/" not in kind.group_version else "/apis/"
    scope = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return f"{root}{kind.group_version}{scope}/{kind.plural}" + (f"/{name}" if name else "")


def _query(**parameters: str) -> str:
    given = {key: value for key, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


def _words(kind: type[KubeObject], name: str, namespace: str | None) -> str:
    return f"{kind.plural} {namespace}/{name}" if namespace else f"{kind.plural} {name}"


def _encoded(wire: dict[str, Any]) -> bytes:
    return json.dumps(wire, separators=(",", ":")).encode()


def _parsed(kind: type[K], asked: str, body: bytes) -> K:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _not_understood(asked, error) from error


def _not_understood(asked: str, error: ValidationError) -> Unavailable:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(step) for step in first["loc"]) or "body"
    return Unavailable(f"{asked}: the answer is not understood: {field}: {first['msg']}")
