"""The parts of answers around objects: a list, an event of a watch, a version."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from trio_npu_dra.kit.api.bodies import BEGINNING
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.kit.api.parsing import NotUnderstood, convert, parse
from trio_npu_dra.kit.base.errors import Unreadable

M = TypeVar("M", bound=BaseModel)


class EventType(StrEnum):
    """The types of events of a watch."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class ListMeta(BaseModel):
    """The place where a watch can begin, and the rest of a list; empty at its end."""

    resource_version: str = Field("", alias="resourceVersion")
    more: str = Field("", alias="continue")


class ObjectList(BaseModel):
    """A list before its objects are converted, each by itself."""

    metadata: ListMeta
    items: list[Any] | None = None


class RawEvent(BaseModel):
    """One line of a watch."""

    type: EventType
    object: dict[str, Any]


class Version(BaseModel):
    """The API server's version; `minor` has a `+` where the provider patched it."""

    minor: str


class WithMetadata(BaseModel):
    """The metadata of any object."""

    metadata: ObjectMeta


def parsed(model: type[M], asked: str, body: bytes) -> M:
    """An answer as *model*.

    Raises:
        Unreadable: It does not fit.
    """
    try:
        return parse(model, body)
    except NotUnderstood as error:
        raise unreadable(asked, error, body) from error


def part(model: type[M], asked: str, value: Any) -> M:
    """A part of an answer as *model*.

    Raises:
        Unreadable: It does not fit.
    """
    try:
        return convert(model, value)
    except NotUnderstood as error:
        raise unreadable(asked, error) from error


def unreadable(asked: str, error: NotUnderstood, body: bytes = b"") -> Unreadable:
    """The error for an answer, with its beginning."""
    return Unreadable(f"{asked}: the answer is not understood: {error}", beginning=body[:BEGINNING])
