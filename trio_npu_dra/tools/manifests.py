"""The configs for this driver in YAML files, and the lines of what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from trio_npu_dra.agent.config import refusals
from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.agent.config.refusals import Path, Problem
from trio_npu_dra.kit.base.errors import UnreadableManifest

PLACES: Final = {
    "DeviceClass": ("spec", "config"),
    "ResourceClaim": ("spec", "devices", "config"),
    "ResourceClaimTemplate": ("spec", "spec", "devices", "config"),
}
"""Where objects of resource.k8s.io have their configs."""

_GROUP: Final = "resource.k8s.io/"
_TOO_DEEP: Final = "it is nested too deeply"
_TRUE: Final = {"y", "yes", "true", "on"}
_HALF: Final = re.compile("[\ud800-\udfff]")
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about a file.

    Attributes:
        line: From 1.
        text: What is there.
    """

    line: int
    text: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found in a file.

    Attributes:
        configs: How many configs for this driver there are.
        problems: What is wrong with them, in the words of the driver's refusal.
        passed_over: Objects of other kinds, which were not looked at.
    """

    configs: int = 0
    problems: list[Remark] = field(default_factory=list)
    passed_over: list[Remark] = field(default_factory=list)


def inspect(content: bytes) -> Report:
    """Look at every object in a file of YAML or JSON, of which it may have several.

    Raises:
        UnreadableManifest: It is no YAML; the message begins with the line.
    """
    report = Report()
    with _translated():
        loader = _Loader(content)
    while True:
        with _translated():
            node = loader.get_node() if loader.check_node() else None
        if node is None:
            return report
        with _nested():
            _look_at(node, loader, report)


@contextmanager
def _translated(line: int = 1) -> Iterator[None]:
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
def _nested() -> Iterator[None]:
    """Translate the end of our own recursion: an object may contain itself."""
    try:
        yield
    except RecursionError:
        raise UnreadableManifest(f"1: {_TOO_DEEP}") from None


class _Loader(yaml.SafeLoader):
    """Takes texts without quotes for what kubectl takes them for.

    That differs a little from YAML 1.1: `y` is true, `1:30` is no number, and a date is a text
    (go.yaml.in/yaml/v2, resolve.go).
    """

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the base class's form

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Any, Any]:
        """An object, whose names are texts, as in JSON."""
        return {
            name.value: self.construct_object(value, deep=deep)
            for name, value in _members(self, node)
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
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"(?:{_pattern})\\Z"), list(_first))
_Loader.add_constructor(_TAG + "bool", lambda _, node: node.value.lower() in _TRUE)


def _look_at(node: yaml.Node, loader: _Loader, report: Report) -> None:
    api_version, kind = (_text(_find(node, loader, name)) for name in ("apiVersion", "kind"))
    here = node.start_mark.line + 1
    if (api_version, kind) == ("v1", "List"):
        for item in _items(_find(node, loader, "items")):
            _look_at(item, loader, report)
    elif api_version.startswith(_GROUP) and kind in PLACES:
        for config in _items(_find(node, loader, *PLACES[kind])):
            if _text(_find(config, loader, "opaque", "driver")) == DRIVER:
                report.configs += 1
                report.problems += _judge(config, kind, loader)
    elif not kind:
        if node.tag != f"{_TAG}null":  # an empty document
            report.passed_over.append(Remark(line=here, text="no object of Kubernetes"))
    elif (api_version, kind) != ("v1", "Pod"):  # a pod names claims and has no config
        text = f"{refusals.show_name(kind)} of {refusals.show_name(api_version)}"
        report.passed_over.append(Remark(line=here, text=text))


def _judge(config: yaml.Node, kind: str, loader: _Loader) -> Iterator[Remark]:
    """What is wrong with one config, by line."""
    node = _find(config, loader, "opaque", "parameters")
    repeated = [] if node is None else list(_repeated(node))
    for problem in repeated or refusals.problems(_value(node, loader)):
        line = _line(node or config, problem.path, loader)
        yield Remark(line=line, text=refusals.refusal([problem], origin=kind))


def _value(node: yaml.Node | None, loader: _Loader) -> Any:
    if node is None:
        return None
    with _translated(node.start_mark.line + 1):
        return loader.construct_document(node)


def _repeated(node: yaml.Node, path: Path = ()) -> Iterator[Problem]:
    """Names that an object has twice, of which kubectl would silently take the last."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*path, index))
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = _text(key)
            here = (*path, name)
            if name in seen:
                text = f"{refusals.show_path(here)} is there twice: remove one"
                yield Problem(path=here, text=text)
            seen.add(name)
            yield from _repeated(value, here)


def _line(node: yaml.Node, path: Path, loader: _Loader) -> int:
    """The line of the last place on a path that is there."""
    mark = node.start_mark
    for step in path:
        if isinstance(step, int):
            node = _items(node)[step]
            mark = node.start_mark
        else:
            found = [each for each in _members(loader, node) if each[0].value == step]
            if not found:
                break
            name, node = found[-1]
            mark = name.start_mark
    return int(mark.line) + 1


def _find(node: yaml.Node | None, loader: _Loader, *names: str) -> yaml.Node | None:
    """The value at a path of names; None if there is none."""
    for name in names:
        values = [value for key, value in _members(loader, node) if key.value == name]
        node = values[-1] if values else None
    return node


def _members(loader: _Loader, node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return []
    line = node.start_mark.line + 1
    with _translated(line):
        loader.flatten_mapping(node)
    if not all(isinstance(name, yaml.ScalarNode) for name, _ in node.value):
        raise UnreadableManifest(f"{line}: the name of a field is no text")
    return [*node.value]


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
