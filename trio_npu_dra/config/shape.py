"""The model as plain values: what can be in each field, for those that write about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin

from annotated_types import MaxLen
from pydantic import BaseModel, StringConstraints
from pydantic.fields import FieldInfo

from trio_npu_dra.config.model import NpuConfig, Reserved, Write

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of some texts."""

    values: tuple[str, ...]
    write: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """True or false."""

    write: str = "true or false"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of up to *max_length* characters; *pattern* is a regular expression of RE2 too."""

    max_length: int
    pattern: str
    reserved: tuple[str, ...]
    write: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """An object of these fields alone.

    Attributes:
        fields: In order.
        words: What it is, for people.
    """

    fields: tuple[Member, ...]
    words: str

    @property
    def names(self) -> list[str]:
        """The names of its fields."""
        return [field.name for field in self.fields]

    @property
    def write(self) -> str:
        """What to write: the fields that must be there, or all if none must."""
        needed = [field.name for field in self.fields if field.is_required]
        return f"an object with {listed(needed or self.names, 'and')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A list of up to *max_length* objects, of which no two have the same *name*."""

    item: Object
    max_length: int

    @property
    def write(self) -> str:
        """What to write."""
        return f"a list in which each is {self.item.write}"


Shape: TypeAlias = Choice | Flag | Text | Object | Several


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A field of an object."""

    name: str
    shape: Shape
    is_required: bool
    default: Any
    examples: tuple[Any, ...]
    words: str


@cache
def shape() -> Object:
    """The shape of `NpuConfig`."""
    return _object(NpuConfig)


def shape_at(path: Iterable[str | int]) -> Shape | None:
    """The shape of what is at *path*; None if the model does not know that."""
    found: Shape | None = shape()
    for step in path:
        if isinstance(found, Several):
            found = found.item
        elif isinstance(found, Object):
            found = next((field.shape for field in found.fields if field.name == step), None)
        else:
            return None
    return found


def listed(words: Iterable[str], last: str) -> str:
    """`a, b and c`."""
    *most, end = words
    return f"{', '.join(most)} {last} {end}" if most else end


def _object(model: type[BaseModel]) -> Object:
    fields = tuple(_member(field) for field in model.model_fields.values())
    return Object(fields=fields, words=" ".join((model.__doc__ or "").split()))


def _member(field: FieldInfo) -> Member:
    return Member(
        name=field.alias or "",
        shape=_shape(field.annotation, field.metadata),
        is_required=field.is_required(),
        default=field.default,
        examples=tuple(field.examples or ()),
        words=field.description or "",
    )


def _shape(annotation: Any, metadata: list[Any]) -> Shape:
    """The shape of a field.

    Raises:
        TypeError: Its type is one that nobody has written words and CEL for.
    """
    write = next((each.words for each in _each(metadata, Write)), "")
    if get_origin(annotation) is Literal:
        values = get_args(annotation)
        return Choice(values=values, write=write or listed(values, "or"))
    if annotation is bool:
        return Flag()
    if annotation is str:
        limits = next(_each(metadata, StringConstraints))
        reserved = [name for each in _each(metadata, Reserved) for name in each.names]
        assert limits.max_length is not None
        return Text(
            max_length=limits.max_length,
            pattern=str(limits.pattern),
            reserved=tuple(reserved),
            write=write,
        )
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        longest = next(_each(metadata, MaxLen)).max_length
        return Several(item=_object(item), max_length=longest)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _object(annotation)
    raise TypeError(f"no words for a field of type {annotation}")


def _each(metadata: list[Any], kind: type[T]) -> Iterator[T]:
    return (each for each in metadata if isinstance(each, kind))
