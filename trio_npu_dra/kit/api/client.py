"""The verbs of the API server that this driver uses, on typed objects."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, Unpack

from trio_npu_dra.kit.api import paths
from trio_npu_dra.kit.api.answers import Status, refusal
from trio_npu_dra.kit.api.bodies import LIST_LIMIT
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.api.pages import Listed, read_pages
from trio_npu_dra.kit.api.parsing import (
    EventType,
    NotUnderstood,
    ObjectList,
    RawEvent,
    Version,
    WithMetadata,
    convert,
    parsed,
    part,
    shortened,
    unreadable,
)
from trio_npu_dra.kit.api.paths import Where
from trio_npu_dra.kit.api.transport import JSON, METADATA, Transport
from trio_npu_dra.kit.base.errors import NotFound, Unavailable, Unreadable

log = logging.getLogger(__name__)
K = TypeVar("K", bound=KubeObject)

REQUEST_DEADLINE: Final = 10.0
WATCH_SECONDS: Final = 290
"""How long one watch lasts before the API server ends it."""
_WATCH_MARGIN: Final = 15.0
_MINOR_DIGITS: Final = 9
"""More are no version, and Python refuses to read a number of 4,301 digits."""
OBJECTS_LIMIT: Final = 1000
"""Objects in one list; the driver lists objects of one node."""


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[K]):
    """One change.

    Attributes:
        type: Never `ERROR`: the watch raises that one.
        object: The object after the change (before it, when deleted); `None` for a bookmark.
        resource_version: The place from which a later watch can continue.
        size: Bytes on the wire.
    """

    type: EventType
    object: K | None
    resource_version: str
    size: int


class KubeClient:
    """Typed access to one API server; made by `open_client`.

    Each request ends within the client's deadline. Cancelling a request at any point leaves the
    client usable. A request that is refused, or has no answer, raises a `KubeError`; `Invalid` also
    for a name that no object or namespace can have, without a request.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._flaws: list[str] = []

    async def get(
        self, kind: type[K], name: str, namespace: str | None = None, *, is_cached: bool = False
    ) -> K:
        """Read one object.

        With *is_cached* the answer may be some seconds old: the API server does not ask etcd for it
        (resourceVersion 0).

        Raises:
            NotFound: It does not exist.
        """
        asked = f"get {_object_name(kind, name, namespace)}"
        version = "0" if is_cached else ""
        answer = await self._ask_about(
            asked, "GET", kind, name, namespace, resource_version=version
        )
        found = parsed(kind, asked, answer)
        if found.metadata.name != name or (namespace or None) != found.metadata.namespace:
            other = _object_name(kind, found.metadata.name, found.metadata.namespace)
            raise Unreadable(f"{asked}: the answer is about {shortened(other)}")
        return found

    async def list(self, kind: type[K], **where: Unpack[Where]) -> tuple[tuple[K, ...], str]:
        """Read all objects of a kind that *where* allows.

        Returns:
            The objects, and the resourceVersion from which a watch continues.
        """
        asked = _many("list", kind, where)
        path = paths.many(kind, where)
        body = await self._transport.ask(asked, "GET", path, limit=LIST_LIMIT)
        answer = parsed(ObjectList, asked, body)
        raw = answer.items or ()
        if len(raw) > OBJECTS_LIMIT:
            raise Unreadable(f"{asked}: {len(raw)} objects, at most {OBJECTS_LIMIT} are read")
        return self._converted(kind, asked, *raw), answer.metadata.resource_version

    def pages(
        self, kind: type[K], *, page: int, **where: Unpack[Where]
    ) -> AsyncGenerator[Listed[K], None]:
        """Read objects of a kind page by page, so that there may be any number of them.

        A page leaves out and names an object that cannot be read by itself.

        Args:
            kind: The kind of the objects.
            page: Objects in one answer at most.
            where: Which of them.

        Raises:
            Gone: It took so long that the API server has forgotten the first page.
        """
        asked = _many("list", kind, where)

        async def ask(path: str) -> bytes:
            form = METADATA if kind.metadata_only else JSON
            return await self._transport.ask(asked, "GET", path, limit=LIST_LIMIT, accept=form)

        return read_pages(ask, asked, kind, where, page=page)

    async def list_all(self, kind: type[K], *, page: int, **where: Unpack[Where]) -> Listed[K]:
        """All `pages` as one, with the version of the first."""
        pages = self.pages(kind, page=page, **where)
        async with aclosing(pages):
            found = [each async for each in pages]
        return Listed(
            objects=tuple(one for each in found for one in each.objects),
            unread=tuple(one for each in found for one in each.unread),
            version=found[0].version,
        )

    async def minor_version(self) -> int:
        """The N of the API server's Kubernetes 1.N."""
        asked = "get version"
        answer = parsed(Version, asked, await self._transport.ask(asked, "GET", "/version"))
        digits = answer.minor.rstrip("+")  # some providers mark their patches
        if not (digits.isascii() and digits.isdigit() and len(digits) < _MINOR_DIGITS):
            raise Unreadable(f"{asked}: the answer is {shortened(answer.minor)}, no number")
        return int(digits)

    async def create(self, obj: K, *, dry_run: bool = False) -> K:
        """Create an object; with *dry_run* the answer shows what would be stored.

        If the answer is lost, the object may exist or not: the client does not ask again.

        Raises:
            Conflict: One of that name exists.
            Invalid: The API server's validation refused it.
        """
        meta = obj.metadata
        name = meta.name or f"{meta.generate_name}*"
        asked = f"create {_object_name(type(obj), name, meta.namespace)}"
        path = paths.collection(type(obj), meta.namespace, dryRun="All" if dry_run else "")
        answer = await self._transport.ask(asked, "POST", path, _encoded(obj.to_wire()))
        return parsed(type(obj), asked, answer)

    async def update(self, obj: K) -> K:
        """Replace an object; its resourceVersion, when given, must still be the stored one.

        Raises:
            Conflict: It changed since it was read.
            NotFound: It does not exist any more.
            Invalid: The API server's validation refused it.
        """
        kind, meta, body = type(obj), obj.metadata, _encoded(obj.to_wire())
        asked = f"update {_object_name(kind, meta.name, meta.namespace)}"
        answer = await self._ask_about(asked, "PUT", kind, meta.name, meta.namespace, body=body)
        return parsed(kind, asked, answer)

    async def apply(self, obj: KubeObject, *, manager: str, subresource: str = "") -> None:
        """Apply the fields of *obj* (server-side apply), and remove those that *manager* left out.

        It takes over fields of other managers, and creates a missing object unless *obj* has a UID.
        With a *subresource*, such as `status`, it changes that part of an object alone. What is
        stored then is not read: others can have made the object such that it is not understood.

        Raises:
            Invalid: It has another UID, or the API server's validation refused it.
            NotFound: The object of the subresource does not exist.
        """
        kind, meta = type(obj), obj.metadata
        what = _object_name(kind, meta.name, meta.namespace)
        asked = f"apply {subresource} of {what}" if subresource else f"apply {what}"
        parameters = {"fieldManager": manager, "force": "true"}
        path = paths.single(kind, meta.name, meta.namespace, subresource=subresource, **parameters)
        await self._transport.ask(asked, "PATCH", path, _encoded(obj.to_wire()))

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
            Conflict: It is another object by now, or changed.
        """
        asked = f"delete {_object_name(kind, name, namespace)}"
        given = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in given.items() if value is not None},
        }
        await self._ask_about(asked, "DELETE", kind, name, namespace, body=_encoded(options))

    @asynccontextmanager
    async def watch(
        self, kind: type[K], *, resource_version: str, **where: Unpack[Where]
    ) -> AsyncIterator[AsyncIterator[WatchEvent[K]]]:
        """Follow changes after *resource_version*; the block begins once the server has accepted.

        The iterator ends when the API server ends the watch, after `WATCH_SECONDS` at most.

        Raises:
            Gone: *resource_version* is too old: list again.
            Unreadable: An event is not understood: list again, because a new watch would send it
                again.
            KubeError: Refused, broken, or not ended in time.
        """
        asked = _many("watch", kind, where)
        path = paths.many(
            kind,
            where,
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
            resourceVersion=resource_version,
        )
        seconds = WATCH_SECONDS + _WATCH_MARGIN
        async with aclosing(self._transport.stream(asked, path, seconds=seconds)) as lines:
            await anext(lines)
            async with aclosing(self._events(kind, asked, lines)) as events:
                yield events

    async def _events(
        self, kind: type[K], asked: str, lines: AsyncIterator[bytes]
    ) -> AsyncGenerator[WatchEvent[K], None]:
        async for line in lines:
            raw = parsed(RawEvent, asked, line)
            if raw.type is EventType.ERROR:
                code = part(Status, asked, raw.object).code
                raise refusal(asked, code, json.dumps(raw.object).encode())
            obj = None
            if raw.type is not EventType.BOOKMARK:
                (obj,) = self._converted(kind, asked, raw.object)
            metadata = obj.metadata if obj else part(WithMetadata, asked, raw.object).metadata
            yield WatchEvent(
                type=raw.type,
                object=obj,
                resource_version=metadata.resource_version or "",
                size=len(line),
            )

    def _converted(self, kind: type[K], asked: str, *items: Any) -> tuple[K, ...]:
        """The objects; one whose metadata alone is understood counts as blank."""
        objects: list[K] = []
        flaws: list[str] = []
        for item in items:
            try:
                obj = convert(kind, item)
            except NotUnderstood as error:
                metadata = part(WithMetadata, asked, item).metadata
                where = shortened(_object_name(kind, metadata.name, metadata.namespace))
                blank = kind.blank(metadata)
                if blank is None:
                    raise unreadable(f"{asked}: {where}", error) from error
                obj = blank
                flaws.append(f"{where}: {error}")
            objects.append(obj)
        if flaws and flaws != self._flaws:  # each watch and list meets the same objects again
            self._flaws = flaws
            log.warning(
                "objects of the API server are not understood and count as empty",
                extra={"asked": asked, "objects": len(flaws), "first": flaws[0]},
            )
        return tuple(objects)

    async def _ask_about(
        self,
        asked: str,
        method: str,
        kind: type[KubeObject],
        name: str,
        namespace: str | None,
        *,
        body: bytes | None = None,
        resource_version: str = "",
    ) -> bytes:
        """Ask about one object; only an answer of the API server about it makes it missing."""
        path = paths.single(kind, name, namespace, resourceVersion=resource_version)
        try:
            return await self._transport.ask(asked, method, path, body)
        except NotFound as error:
            if error.missing not in {None, (kind.plural, name)}:
                raise Unavailable(str(error), status=error.status) from error
            raise


@asynccontextmanager
async def open_client(
    credentials: Credentials,
    *,
    user_agent: str = "dra-driver",
    deadline: float = REQUEST_DEADLINE,
) -> AsyncIterator[KubeClient]:
    """A client for the block.

    Args:
        credentials: Where the API server is, and who we are there.
        user_agent: For the API server's audit log.
        deadline: Seconds for one request in all.
    """
    transport = Transport(credentials, deadline=deadline, user_agent=user_agent)
    try:
        yield KubeClient(transport)
    finally:
        transport.end()


def _many(verb: str, kind: type[KubeObject], where: Where) -> str:
    selectors = where.get("field_selector"), where.get("label_selector")
    return " ".join(filter(None, (verb, kind.plural, *selectors)))


def _object_name(kind: type[KubeObject], name: str, namespace: str | None) -> str:
    return f"{kind.plural} {namespace}/{name}" if namespace else f"{kind.plural} {name}"


def _encoded(wire: dict[str, Any]) -> bytes:
    return json.dumps(wire, separators=(",", ":")).encode()
