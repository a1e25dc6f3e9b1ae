"""What answers have around their objects: a list, an event of a watch, a version."""

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
    """What a watch says about an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class ListMeta(BaseModel):
    """Where a list stands.

    Attributes:
        resourceVersion: Where a watch can begin.
        more: Continues a list that is not complete; empty for one that is.
    """

    resourceVersion: str = ""  # noqa: N815 - as on the wire
    more: str = Field("", alias="continue")


class ObjectList(BaseModel):
    """Objects as they came."""

    metadata: ListMeta
    items: list[Any] | None = None  # each is converted by itself, up to the first that is wrong


class RawEvent(BaseModel):
    """One line of a watch."""

    type: EventType
    object: dict[str, Any]


class Version(BaseModel):
    """Of the API server; `minor` has a `+` where the provider patched it."""

    minor: str


class WithMetadata(BaseModel):
    """Any object, of which the metadata matters."""

    metadata: ObjectMeta


def parsed(model: type[M], asked: str, body: bytes) -> M:
    """The answer to what was asked.

    Raises:
        Unreadable: It is none.
    """
    try:
        return parse(model, body)
    except NotUnderstood as error:
        raise unreadable(asked, error, body) from error


def part(model: type[M], asked: str, value: Any) -> M:
    """A part of the answer to what was asked.

    Raises:
        Unreadable: It is none.
    """
    try:
        return convert(model, value)
    except NotUnderstood as error:
        raise unreadable(asked, error) from error


def unreadable(asked: str, error: NotUnderstood, body: bytes = b"") -> Unreadable:
    """What is raised of such an answer."""
    return Unreadable(f"{asked}: the answer is not understood: {error}", beginning=body[:BEGINNING])
