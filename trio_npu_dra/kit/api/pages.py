"""Lists of any length, page by page; an object that cannot be read hides no other.

After a page that is too large the next request asks for fewer objects. A single object that still
is too large is left out: an answer begins with the place where the list goes on, and with its name.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, Field
from pydantic_core import from_json

from trio_npu_dra.kit.api import paths
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.api.parsing import NotUnderstood, ObjectList, convert, parsed, shortened
from trio_npu_dra.kit.api.paths import Where
from trio_npu_dra.kit.base.errors import Unreadable

K = TypeVar("K", bound=KubeObject)

_DEPTH: Final = 8
"""Brackets around the metadata of an object in a list, and some more."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An object in a list that cannot be read; names that cannot be read either are empty."""

    namespace: str
    name: str
    uid: str
    why: str

    @property
    def title(self) -> str:
        """`namespace/name`."""
        title = "/".join(filter(None, (self.namespace, self.name)))
        return shortened(title) or "one without a name"


@dataclass(frozen=True, slots=True)
class Listed(Generic[K]):
    """A list, or one page of it.

    Attributes:
        objects: All that can be read.
        unread: The rest.
        version: The resourceVersion from which a watch continues.
    """

    objects: tuple[K, ...]
    unread: tuple[Unread, ...]
    version: str


async def read_pages(
    ask: Callable[[str], Awaitable[bytes]],
    asked: str,
    kind: type[K],
    where: Where,
    *,
    page: int,
) -> AsyncGenerator[Listed[K], None]:
    """The pages of a list, as `KubeClient.pages` has them; *ask* gets the answer to a path.

    Raises:
        KubeError: Refused or unreachable, or the answer is no list.
    """
    size, more = page, ""
    while True:
        path = paths.many(kind, where, limit=str(size), **{"continue": more})
        objects: list[K] = []
        unread: list[Unread] = []
        try:
            answer = parsed(ObjectList, asked, await ask(path))
        except Unreadable as error:
            if size > 1:
                size //= 2
                continue
            answer, first = _beginning(error)
            unread.append(_unread(first, str(error).removeprefix(f"{asked}: ")))
        else:
            for item in answer.items or ():
                try:
                    objects.append(convert(kind, item))
                except NotUnderstood as error:
                    unread.append(_unread(item, str(error)))
            size = min(page, size * 2)  # not after one that was left out: the next may be as large
        yield Listed(
            objects=tuple(objects), unread=tuple(unread), version=answer.metadata.resource_version
        )
        before, more = more, answer.metadata.more
        if not more:
            return
        if more == before:
            raise Unreadable(f"{asked}: the list does not go on after one of its pages")


class _Identity(BaseModel, defer_build=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Identified(BaseModel, defer_build=True):
    metadata: _Identity = Field(default_factory=_Identity)


def _unread(item: Any, why: str) -> Unread:
    try:
        meta = convert(_Identified, item).metadata
    except NotUnderstood:
        meta = _Identity()
    return Unread(namespace=meta.namespace, name=meta.name, uid=meta.uid, why=why)


def _beginning(error: Unreadable) -> tuple[ObjectList, Any]:
    """The beginning of an answer that cannot be read: a list, and a part of its first object.

    Raises:
        Unreadable: It is no list, or an empty one.
    """
    depth, end = 0, 0
    for end, mark in enumerate(error.beginning):  # noqa: B007 - the loop looks for the end
        depth += (mark in b"[{") - (mark in b"]}")
        if depth > _DEPTH:
            break
    try:
        answer = convert(ObjectList, from_json(error.beginning[:end], allow_partial=True))
    except ValueError:
        raise error from None
    if not answer.items:
        raise error
    return answer, answer.items[0]
