"""JSON of the API server as models, within a budget of time and memory.

Eight megabytes of small values take half a minute and more than a gigabyte, and so do many errors.
So answers of more than `VALUES_LIMIT` values are refused before they are parsed, and collections
have a limit of errors (`objects.Items`, `objects.Named`). pydantic itself limits depth.
"""

from enum import StrEnum
from typing import Any, Final, TypeVar

from pydantic import BaseModel, Field, ValidationError

from trio_npu_dra.kit.api.bodies import BEGINNING
from trio_npu_dra.kit.api.objects import ObjectMeta
from trio_npu_dra.kit.base.errors import Unreadable

M = TypeVar("M", bound=BaseModel)

VALUES_LIMIT: Final = 100_000
"""Values in one answer: numbers, strings, arrays, objects.

A full ResourceSlice (128 devices of 32 attributes) has some 13,000, managed fields of 100 kB as
many.
"""
_TEXT_LIMIT: Final = 500


class NotUnderstood(ValueError):
    """JSON that does not fit the model; the message names the first field that is wrong."""


def parse(model: type[M], body: bytes) -> M:
    """JSON as *model*.

    Raises:
        NotUnderstood: It is no JSON, has too many values, or does not fit the model.
    """
    # Each value but the first follows a mark of one byte.
    if len(body) >= VALUES_LIMIT and (values := _values(body)) > VALUES_LIMIT:
        raise NotUnderstood(f"it has about {values} values, at most {VALUES_LIMIT} are read")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _not_understood(error) from error


def convert(model: type[M], value: Any) -> M:
    """A part of parsed JSON as *model*.

    Raises:
        NotUnderstood: It does not fit the model.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _not_understood(error) from error


def _values(body: bytes) -> int:
    """How many values JSON has, or a number above the limit, by the marks outside of its strings.

    In a body that is no JSON the count goes at least as far as the parser reads.
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # each quote left opens or closes one
    quotes = plain.count(b'"')
    if quotes > 4 * VALUES_LIMIT:  # a value has at most two strings, its key and itself
        return quotes // 4
    outside = b"".join(plain.split(b'"')[::2])
    return 1 + sum(outside.count(mark) for mark in (b",", b"[", b"{"))


def shortened(text: str) -> str:
    """Foreign text, cut to a length that fits a message."""
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}..."


def _not_understood(error: ValidationError) -> NotUnderstood:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(step) for step in first["loc"]) or "body"
    return NotUnderstood(f"{shortened(field)}: {first['msg']}")


# --- answers --------------------------------------------------------------------------------------


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


class RawEvent(BaseModel, defer_build=True):
    """One line of a watch."""

    type: EventType
    object: dict[str, Any]


class Version(BaseModel, defer_build=True):
    """The API server's version; `minor` has a `+` where the provider patched it."""

    minor: str


class WithMetadata(BaseModel, defer_build=True):
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
