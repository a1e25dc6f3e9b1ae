"""What is wrong with a config, in words.

The admission policy says the same word by word (`policy` makes the same sentences in CEL), so these
sentences use nothing that CEL cannot do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trio_npu_dra.config.model import NpuConfig
from trio_npu_dra.config.shape import Object, Text, shape_at
from trio_npu_dra.errors import InvalidOpaqueConfig

PROBLEMS_TOLD: Final = 3
SHOWN: Final = 60  # characters of a name or value
HIDDEN: Final = (
    *((0x00, 0x1F), (0x7F, 0xA0), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E)),
    *((0x200B, 0x200F), (0x2028, 0x202F), (0x205F, 0x206F), (0xFEFF, 0xFEFF)),
    *((0xFFF0, 0xFFFD), (0xE0000, 0xE0FFF)),
)
"""Characters that break lines, change the direction, or cannot be seen: from, to."""

BETWEEN: Final = "; "
ROOT: Final = "parameters"
UNPRINTABLE_TEXT: Final = "a text with unprintable characters"
UNPRINTABLE_NAME: Final = "(a name with unprintable characters)"

_SURROGATES: Final = ((0xD800, 0xDFFF),)  # not in CEL's texts, but in those that JSON can have here
_HIDDEN: Final = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in HIDDEN + _SURROGATES)}]"
)

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something wrong in a config.

    Attributes:
        path: The wrong field.
        text: Its name, its value and what to do.
    """

    path: Path
    text: str


def parse_config(parameters: Any, *, origin: str) -> NpuConfig:
    """Check the parameters of one opaque config.

    Args:
        parameters: The JSON value of `opaque.parameters`.
        origin: The kind of the object that it is in.

    Raises:
        InvalidOpaqueConfig: Names each wrong field, its value, and what to do.
    """
    try:
        return NpuConfig.model_validate(parameters)
    except ValidationError as error:
        raise InvalidOpaqueConfig(refusal(_problems(error), origin=origin)) from None


def problems(parameters: Any) -> Sequence[Problem]:
    """All that is wrong with the parameters of one opaque config."""
    try:
        NpuConfig.model_validate(parameters)
    except ValidationError as error:
        return _problems(error)
    return ()


def refusal(found: Sequence[Problem], *, origin: str) -> str:
    """The first few problems, so that what to do still fits into an Event of the pod."""
    told = [problem.text for problem in found[:PROBLEMS_TOLD]]
    if len(found) > len(told):
        told.append(untold(str(len(found) - len(told))))
    return refusal_of(BETWEEN.join(told), origin=origin)


def refusal_of(told: str, *, origin: str) -> str:
    """A config of an object of that kind is refused."""
    return f"opaque config in the {origin}: {told}"


def untold(more: str) -> str:
    """How many more problems there are."""
    return f"and {more} more"


def missing(path: str, write: str) -> str:
    """A field that must be there is not."""
    return f"{path} is missing: write {write}"


def wrong(path: str, shown: str, write: str) -> str:
    """A field has a value that it cannot have."""
    return f"{path} is {shown}: write {write}"


def too_long(path: str, size: str, things: str, limit: int) -> str:
    """A field has too much of something."""
    return f"{path} has {size} {things}: write at most {limit}"


def reserved(path: str, shown: str) -> str:
    """A variable's name is one of ours."""
    return f"{path} is {shown}, which the driver sets itself: write another name"


def repeated(path: str, shown: str, first: str) -> str:
    """A name is there already."""
    return f"{path} is {shown}, as is {first}: write each name once"


def unknown(path: str, known: Iterable[str]) -> str:
    """There is a field that nobody knows."""
    return f"{path} is not known to this driver: remove it (known: {', '.join(known)})"


def several_unknown(path: str, more: str, known: Iterable[str]) -> str:
    """There are several: the first by name, and how many *more*. CEL cannot sort them all."""
    return (
        f"{path} and {more} more are not known to this driver: "
        f"remove them (known: {', '.join(known)})"
    )


def show(value: Any) -> str:
    """A value, in one short line."""
    if isinstance(value, str):
        text = _cut(value)
        return UNPRINTABLE_TEXT if _HIDDEN.search(text) else f'"{text}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return str(value)
    if value is None:
        return "null"
    kinds = {list: "a list", dict: "an object"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "a number")


def show_name(name: str) -> str:
    """The name of a field that somebody wrote, in one short line."""
    text = _cut(name)
    return UNPRINTABLE_NAME if _HIDDEN.search(text) else text


def show_path(path: Path) -> str:
    """`env[2].name`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{show_name(step)}" for step in path)
    return "".join(steps).removeprefix(".") or ROOT


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _problems(error: ValidationError) -> Sequence[Problem]:
    found: list[Problem] = []
    details = error.errors(include_url=False)
    for object_, group in groupby(details, key=_object_with_unknown_fields):
        if object_ is None:
            found += (_explain(each) for each in group)
        else:
            found.append(_unknown(object_, (str(each["loc"][-1]) for each in group)))
    return found


def _object_with_unknown_fields(details: ErrorDetails) -> Path | None:
    return details["loc"][:-1] if details["type"] == "extra_forbidden" else None


def _unknown(path: Path, names: Iterator[str]) -> Problem:
    first, *more = sorted(names)
    known = shape_at(path)
    assert isinstance(known, Object)
    here = show_path((*path, first))
    if more:
        text = several_unknown(here, str(len(more)), known.names)
    else:
        text = unknown(here, known.names)
    return Problem(path=(*path, first), text=text)


def _explain(details: ErrorDetails) -> Problem:
    path, value, context = details["loc"], details["input"], details.get("ctx", {})
    kind, here, shape = details["type"], show_path(path), shape_at(path)
    assert shape is not None, "there are no words for an error of a field that is not known"
    if kind == "missing":
        text = missing(here, shape.write)
    elif kind in {"string_too_long", "too_long"}:
        things = "characters" if isinstance(shape, Text) else "entries"
        text = too_long(here, str(len(value)), things, context["max_length"])
    elif kind == "reserved":
        text = reserved(here, show(value))
    elif kind == "repeated":
        path = (*path, context["index"], "name")
        first = show_path((*details["loc"], context["first"], "name"))
        text = repeated(show_path(path), show(context["name"]), first)
    else:
        text = wrong(here, show(value), shape.write)
    return Problem(path=path, text=text)
