"""JSON of the API server as models, within a budget of time and memory.

The cost of an answer depends on the number of its values, and on how many of them are wrong: eight
megabytes of small ones take half a minute and more than a gigabyte. So answers of more than
`VALUES_LIMIT` values are refused before they are parsed, and the collections of the models have a
limit of errors (`objects.Items`, `objects.Named`). pydantic itself limits depth.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

VALUES_LIMIT: Final = 100_000
"""Values in one answer: numbers, strings, arrays, objects.

They are counted by their commas and brackets, so those in strings count too. A full ResourceSlice
(128 devices of 32 attributes) has some 13,000, managed fields of 100 kB as many.
"""
_TEXT_LIMIT: Final = 300


class NotUnderstood(ValueError):
    """JSON that is not what was expected; the message names the first field that is wrong."""


def parse(model: type[M], body: bytes) -> M:
    """JSON as *model*.

    Raises:
        NotUnderstood: It is no JSON, has too many values, or does not fit the model.
    """
    values = 1 + sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if values > VALUES_LIMIT:
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


def shortened(text: str) -> str:
    """Foreign text, cut to a length that fits a message."""
    return text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}..."


def _not_understood(error: ValidationError) -> NotUnderstood:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(step) for step in first["loc"]) or "body"
    return NotUnderstood(f"{shortened(field)}: {first['msg']}")
