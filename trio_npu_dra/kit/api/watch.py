"""A local view of objects in the API server, kept current by list and watch."""

import logging
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import Generic, TypeVar, Unpack

import trio

from trio_npu_dra.kit.api.bodies import LIST_LIMIT
from trio_npu_dra.kit.api.client import OBJECTS_LIMIT, KubeClient, WatchEvent
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.api.parsing import EventType
from trio_npu_dra.kit.api.paths import Where
from trio_npu_dra.kit.base.errors import Gone, KubeError, Unavailable, Unreadable
from trio_npu_dra.kit.base.pace import Retry

log = logging.getLogger(__name__)
K = TypeVar("K", bound=KubeObject)

_SHORT_WATCH = 1.0


@dataclass(frozen=True, slots=True)
class View(Generic[K]):
    """The objects as last seen, and whether the view follows changes.

    Attributes:
        objects: By name, or `namespace/name`.
        synced: False before the first list, when *objects* is empty because nothing is known.
        stale_since: `trio.current_time()` at which contact was lost; `None` while a watch is open,
            or while the next one opens after a list.
    """

    objects: Mapping[str, K] = field(default_factory=dict)
    synced: bool = False
    stale_since: float | None = None


async def list_and_watch(
    client: KubeClient,
    kind: type[K],
    *,
    listed: tuple[tuple[K, ...], str] | None = None,
    page: int | None = None,
    **where: Unpack[Where],
) -> AsyncGenerator[View[K], None]:
    """Yield a view now, and a new one after each change, loss of contact and recovery, for ever.

    Watches continue from the last bookmark or event. A new list follows when the API server has
    forgotten that place, and, with pauses that grow to minutes, when an event is not understood: a
    watch would meet it again. A view stays within the limits of a list, unless it is read in pages.
    Every failure is retried, also a missing right: an administrator can grant it later.

    Args:
        client: The API server.
        kind: The kind of the objects.
        listed: The objects and their version, if the caller has just listed.
        page: Objects in one answer of a list, which then may have any number of them, and leaves
            out those that cannot be read.
        where: Which objects.
    """
    retry = Retry(f"watching {kind.plural}", log)
    listed_at = -inf
    picture: _Picture[K] = _Picture(f"watch {kind.plural}", is_limited=page is None)
    yield picture.view()
    while True:
        # Contact came back with this watch, which has sent nothing yet. A restarted API server may
        # then have forgotten the watch's place: that is no second loss of contact.
        is_back = False
        try:
            if not picture.version:
                listed_at = trio.current_time()
                picture.replace(*(listed or await _list(client, kind, page, where)))
                listed = None
            opened = trio.current_time()
            async with client.watch(kind, resource_version=picture.version, **where) as events:
                is_back = picture.stale_since is not None
                picture.stale_since = None
                retry.recovered()
                yield picture.view()
                async for event in events:
                    is_back = False
                    if picture.apply(event):
                        yield picture.view()
            if trio.current_time() - opened < _SHORT_WATCH:
                raise Unavailable(f"watch {kind.plural}: ended immediately")
        except KubeError as error:
            # A place that is too old is worth an immediate list, unless it was just listed.
            is_too_old = isinstance(error, Gone) and trio.current_time() - listed_at > _SHORT_WATCH
            if picture.stale_since is None and not (is_back and is_too_old):
                picture.stale_since = trio.current_time()
                yield picture.view()
            if isinstance(error, Gone | Unreadable):
                picture.version = ""
            if is_too_old:
                continue
            await trio.sleep(retry.failed(error))


async def _list(
    client: KubeClient, kind: type[K], page: int | None, where: Where
) -> tuple[tuple[K, ...], str]:
    if page is None:
        return await client.list(kind, **where)
    found = await client.list_all(kind, page=page, **where)
    return found.objects, found.version


class _Picture(Generic[K]):
    """The objects while they change; *asked* is the watch as text, for messages."""

    def __init__(self, asked: str, *, is_limited: bool) -> None:
        self._asked = asked
        self._is_limited = is_limited
        self.version = ""
        self.synced = False
        self.stale_since: float | None = trio.current_time()
        self._objects: dict[str, K] = {}
        self._sizes: dict[str, int] = {}  # bytes, of objects that came in events since the list

    def replace(self, objects: tuple[K, ...], version: str) -> None:
        self._objects = {_key(obj): obj for obj in objects}
        self._sizes = {}
        self.version = version
        self.synced = True

    def apply(self, event: WatchEvent[K]) -> bool:
        """Apply an event, and return whether objects changed.

        Raises:
            Unreadable: The objects exceed the limits of a list.
        """
        self.version = event.resource_version
        if event.object is None:
            return False
        key = _key(event.object)
        if event.type is EventType.DELETED:
            self._sizes.pop(key, None)
            return self._objects.pop(key, None) is not None
        sizes = {**self._sizes, key: event.size}
        is_one_more = key not in self._objects
        is_large = (
            len(self._objects) + is_one_more > OBJECTS_LIMIT or sum(sizes.values()) > LIST_LIMIT
        )
        if is_large and self._is_limited:
            raise Unreadable(
                f"{self._asked}: more than {OBJECTS_LIMIT} objects or {LIST_LIMIT} bytes of them"
            )
        self._objects[key] = event.object
        self._sizes = sizes
        return True

    def view(self) -> View[K]:
        return View(
            objects=MappingProxyType(dict(self._objects)),
            synced=self.synced,
            stale_since=self.stale_since,
        )


def _key(obj: KubeObject) -> str:
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
