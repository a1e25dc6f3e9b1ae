"""Lists of any length, read page by page; an object that cannot be read costs nobody the others.

A page that is too large is asked for again with fewer objects. A page of one object that still is
too large is left out: the list goes on after it, because an answer begins with where it continues,
and an object with its name.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

from trio_npu_dra.kit.api import paths
from trio_npu_dra.kit.api.envelopes import ObjectList, parsed
from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.api.parsing import NotUnderstood, convert, shortened
from trio_npu_dra.kit.base.errors import Unreadable

K = TypeVar("K", bound=KubeObject)

_DEPTH: Final = 8
"""Brackets around the metadata of an object in a list, and some more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object that a list has and that cannot be read.

    Attributes:
        namespace: Its namespace; empty if it has none, or if that cannot be read either.
        name: Its name, likewise.
        uid: Its UID, likewise.
        why: What is wrong with it.
    """

    namespace: str
    name: str
    uid: str
    why: str

    @property
    def title(self) -> str:
        """`namespace/name`."""
        title = "/".join(filter(None, (self.namespace, self.name)))
        return shortened(title) or "one without a name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[K]):
    """A list, or one page of it.

    Attributes:
        objects: Those that can be read.
        unread: The others.
        version: The resourceVersion from which a watch continues.
    """

    objects: tuple[K, ...]
    unread: tuple[Unread, ...]
    version: str


async def read_pages(
    ask: Callable[[str], Awaitable[bytes]],
    asked: str,
    kind: type[K],
    *,
    namespace: str | None,
    field_selector: str,
    page: int,
) -> AsyncGenerator[Listed[K], None]:
    """The pages of a list.

    Args:
        ask: Gets the answer to a path.
        asked: The request in words, for messages.
        kind: The kind of the objects.
        namespace: Theirs; all namespaces without it.
        field_selector: Which of them.
        page: How many objects one answer has at most.

    Raises:
        KubeError: Refused or unreachable, or what answers gives no lists.
    """
    size, more = page, ""
    while True:
        path = paths.collection(
            kind, namespace, fieldSelector=field_selector, limit=str(size), **{"continue": more}
        )
        try:
            answer = parsed(ObjectList, asked, await ask(path))
        except Unreadable as error:
            if size > 1:
                size //= 2
                continue
            answer, first = _beginning(error)
            unread = _unread(first, str(error).removeprefix(f"{asked}: "))
            yield Listed(objects=(), unread=(unread,), version=answer.metadata.resourceVersion)
        else:
            yield _listed(kind, answer)
            size = min(page, size * 2)  # not after one that was left out: the next may be as large
        before, more = more, answer.metadata.more
        if not more:
            return
        if more == before:
            raise Unreadable(f"{asked}: the list does not go on after one of its pages")


class _Identity(BaseModel):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Identified(BaseModel):
    metadata: _Identity = _Identity()


def _listed(kind: type[K], answer: ObjectList) -> Listed[K]:
    objects, unread = [], []
    for item in answer.items or ():
        try:
            objects.append(convert(kind, item))
        except NotUnderstood as error:
            unread.append(_unread(item, str(error)))
    version = answer.metadata.resourceVersion
    return Listed(objects=tuple(objects), unread=tuple(unread), version=version)


def _unread(item: Any, why: str) -> Unread:
    try:
        meta = convert(_Identified, item).metadata
    except NotUnderstood:
        meta = _Identity()
    return Unread(namespace=meta.namespace, name=meta.name, uid=meta.uid, why=why)


def _beginning(error: Unreadable) -> tuple[ObjectList, Any]:
    """What an answer that cannot be read begins with: a list, and a part of its first object.

    Raises:
        Unreadable: It is no list, or an empty one.
    """
    depth, end = 0, 0
    for end, mark in enumerate(error.beginning):  # noqa: B007 - the end is what is looked for
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
