"""YAML and JSON as kubectl reads them, in nodes that know their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml

from trio_npu_dra.kit.base.errors import UnreadableManifest

TAG: Final = "tag:yaml.org,2002:"
_TOO_DEEP: Final = "it is nested too deeply"
_TRUE: Final = {"y", "yes", "true", "on"}
_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about a file.

    Attributes:
        line: From 1.
        text: What is there.
    """

    line: int
    text: str


@contextmanager
def translated(line: int = 1) -> Iterator[None]:
    """Translate what PyYAML raises into one line; *line* counts if the error has none."""
    try:
        yield
    except UnreadableManifest:
        raise
    except RecursionError:
        raise UnreadableManifest(f"{line}: {_TOO_DEEP}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = mark.line + 1 if mark else line
        raise UnreadableManifest(f"{where}: {error.problem or error.context}") from None
    except Exception as error:  # PyYAML raises half a dozen other types for such as `!!bool ""`
        words = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableManifest(f"{line}: {words}") from error


@contextmanager
def nested() -> Iterator[None]:
    """Translate the end of our own recursion: an object may contain itself."""
    try:
        yield
    except RecursionError:
        raise UnreadableManifest(f"1: {_TOO_DEEP}") from None


class Loader(yaml.SafeLoader):
    """Takes texts without quotes for what kubectl takes them for.

    That differs a little from YAML 1.1: `y` is true, `1:30` is no number, and a date is a text
    (go.yaml.in/yaml/v2, resolve.go).
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class's form

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """An object, whose names are texts, as in JSON."""
        return {
            name.value: self.construct_object(value, deep=deep)
            for name, value in members(self, node)
        }

    def construct_scalar(self, node: Any) -> Any:
        """A text, in which the two escapes that JSON has for some characters are one character."""
        text = super().construct_scalar(node)
        if not isinstance(text, str) or not _HALF.search(text):
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


for _kind, _pattern, _first in (
    ("bool", "y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE", "yYnNtTfF"),
    ("bool", "on|On|ON|off|Off|OFF", "oO"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", "[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", "<<", "<"),
):
    Loader.add_implicit_resolver(TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), list(_first))
Loader.add_constructor(TAG + "bool", lambda _, node: node.value.lower() in _TRUE)


def find(node: yaml.Node | None, loader: Loader, *names: str) -> yaml.Node | None:
    """The value at a path of names; None if there is none."""
    for name in names:
        values = [value for key, value in members(loader, node) if key.value == name]
        node = values[-1] if values else None
    return node


def members(loader: Loader, node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    """The names of an object's fields, and their values; none if it is no object.

    Raises:
        UnreadableManifest: A name is no text.
    """
    if not isinstance(node, yaml.MappingNode):
        return []
    line = node.start_mark.line + 1
    with translated(line):
        loader.flatten_mapping(node)
    if not all(isinstance(name, yaml.ScalarNode) for name, _ in node.value):
        raise UnreadableManifest(f"{line}: the name of a field is no text")
    return [*node.value]


def items(node: yaml.Node | None) -> list[yaml.Node]:
    """The items of a list; none if it is no list."""
    return node.value if isinstance(node, yaml.SequenceNode) else []


def scalar(node: yaml.Node | None) -> str:
    """A text, or what is written of another simple value; empty if it is none."""
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


def line_of(word: str, node: yaml.Node) -> int:
    """The first line of a text that has a word; the line where the text begins if none has."""
    start, end = node.start_mark, node.end_mark
    written = (start.buffer or "")[start.pointer : start.pointer + end.index - start.index]
    found = re.search(rf"\b{re.escape(word)}\b", written)
    return int(start.line) + 1 + (written.count("\n", 0, found.start()) if found else 0)
