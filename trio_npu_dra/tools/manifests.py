"""What is wrong in the claims and DeviceClasses of YAML files, with the lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from trio_npu_dra.agent.config import refusals
from trio_npu_dra.agent.config.model import DRIVER
from trio_npu_dra.agent.config.refusals import Path, Problem
from trio_npu_dra.tools import names
from trio_npu_dra.tools.yaml_nodes import (
    TAG,
    Loader,
    Remark,
    find,
    items,
    members,
    nested,
    scalar,
    translated,
)

PLACES: Final = {
    "DeviceClass": ("spec",),
    "ResourceClaim": ("spec", "devices"),
    "ResourceClaimTemplate": ("spec", "spec", "devices"),
}
"""Where objects of resource.k8s.io say which devices are meant, and have their configs."""

_GROUP: Final = "resource.k8s.io/"


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found in a file.

    Attributes:
        configs: How many configs for this driver there are.
        problems: What is wrong, in line order; with a config in the words of the driver's refusal.
        classes: The DeviceClasses that the file has.
        asked: The names of the DeviceClasses for which it asks.
        passed_over: Objects of other kinds, which were not looked at.
    """

    configs: int = 0
    problems: list[Remark] = field(default_factory=list)
    classes: set[str] = field(default_factory=set)
    asked: list[Remark] = field(default_factory=list)
    passed_over: list[Remark] = field(default_factory=list)


def inspect(content: bytes) -> Report:
    """Look at every object in a file of YAML or JSON, of which it may have several.

    Raises:
        UnreadableManifest: It is no YAML; the message begins with the line.
    """
    report = Report()
    with translated():
        loader = Loader(content)
    while True:
        with translated():
            node = loader.get_node() if loader.check_node() else None
        if node is None:
            report.problems.sort(key=lambda remark: remark.line)
            return report
        with nested():
            _look_at(node, loader, report)


def _look_at(node: yaml.Node, loader: Loader, report: Report) -> None:
    api_version, kind = (scalar(find(node, loader, name)) for name in ("apiVersion", "kind"))
    here = node.start_mark.line + 1
    if (api_version, kind) == ("v1", "List"):
        for item in items(find(node, loader, "items")):
            _look_at(item, loader, report)
    elif api_version.startswith(_GROUP) and kind in PLACES:
        _look_at_devices(node, kind, loader, report)
    elif not kind:
        if node.tag != f"{TAG}null":  # an empty document
            report.passed_over.append(Remark(line=here, text="no object of Kubernetes"))
    elif (api_version, kind) != ("v1", "Pod"):  # a pod names claims and has no config
        text = f"{refusals.show_name(kind)} of {refusals.show_name(api_version)}"
        report.passed_over.append(Remark(line=here, text=text))


def _look_at_devices(node: yaml.Node, kind: str, loader: Loader, report: Report) -> None:
    devices = find(node, loader, *PLACES[kind])
    for config in items(find(devices, loader, "config")):
        if scalar(find(config, loader, "opaque", "driver")) == DRIVER:
            report.configs += 1
            report.problems += _judge(config, kind, loader)
    if kind == "DeviceClass":
        report.classes |= {scalar(find(node, loader, "metadata", "name"))} - {""}
        report.problems += names.unknown_in_selectors(devices, loader)
    else:
        report.asked += names.classes_asked(devices, loader)
        report.problems += names.unknown_in_claim(devices, loader)


def _judge(config: yaml.Node, kind: str, loader: Loader) -> Iterator[Remark]:
    """What is wrong with one config, by line."""
    node = find(config, loader, "opaque", "parameters")
    repeated = [] if node is None else list(_repeated(node))
    for problem in repeated or refusals.problems(_value(node, loader)):
        line = _line(node or config, problem.path, loader)
        yield Remark(line=line, text=refusals.refusal([problem], origin=kind))


def _value(node: yaml.Node | None, loader: Loader) -> Any:
    if node is None:
        return None
    with translated(node.start_mark.line + 1):
        return loader.construct_document(node)


def _repeated(node: yaml.Node, path: Path = ()) -> Iterator[Problem]:
    """Names that an object has twice, of which kubectl would silently take the last."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*path, index))
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = scalar(key)
            here = (*path, name)
            if name in seen:
                text = f"{refusals.show_path(here)} is there twice: remove one"
                yield Problem(path=here, text=text)
            seen.add(name)
            yield from _repeated(value, here)


def _line(node: yaml.Node, path: Path, loader: Loader) -> int:
    """The line of the last place on a path that is there."""
    mark = node.start_mark
    for step in path:
        if isinstance(step, int):
            node = items(node)[step]
            mark = node.start_mark
        else:
            found = [each for each in members(loader, node) if each[0].value == step]
            if not found:
                break
            name, node = found[-1]
            mark = name.start_mark
    return int(mark.line) + 1
