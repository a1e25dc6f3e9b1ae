"""The chart's values: their tables in docs/helm.md, and what code says of them in the schema.

`just generated` writes both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

import yaml

from dev.site.markdown import with_table
from trio_npu_dra.agent.devices.taints import TaintEffect, TaintPolicy
from trio_npu_dra.agent.settings import Settings
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.lab.simulator import profile_names

ROOT: Final = Path(__file__).parent.parent.parent
CHART: Final = ROOT / "charts/trio-npu-dra"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
PAGE: Final = ROOT / "docs/helm.md"
OF_THE_POD: Final = frozenset(
    {
        *("cdi_root", "dev_root", "host_root", "sysfs_root"),
        *("kubelet_device_plugins_directory_path", "kubelet_plugins_directory_path"),
        *("kubelet_pod_resources_directory_path", "kubelet_registrar_directory_path"),
        *("node_name", "pod_name", "pod_uid", "driver_name", "device_profile", "kubeconfig"),
        *("healthcheck_port", "http_port"),
    }
)
"""Settings that the manifests fix, because they belong together with other parts of these."""
_VALUES_HEAD: Final = "| value | default | meaning |"
_FLAGS_HEAD: Final = "| flag | takes | default | meaning |"
_KEPT: Final = ("type", "enum", "minimum", "maximum", "default", "description")
_KEY: Final = re.compile(r"( *)([\w./-]+):")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A documented value of values.yaml: its path in the file, its default and its comment."""

    path: tuple[str, ...]
    default: Any
    meaning: str


def values() -> list[Value]:
    """The values that have a comment, in the order of values.yaml."""
    defaults = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
    found = []
    path: list[str] = []
    comment: list[str] = []
    for line in VALUES.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip("# "))
            continue
        if key := _KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if comment:
                default = reduce(getitem, path, defaults)
                meaning = " ".join(comment)
                found.append(Value(path=tuple(path), default=default, meaning=meaning))
        comment = []
    return found


def flags() -> dict[str, Any]:
    """The flags that values may give, each as its part of the schema.

    A flag that takes parts separated by commas is a list or an object here.
    """
    described = Settings.model_json_schema()["properties"]
    offered = {
        name.replace("_", "-"): {word: about[word] for word in _KEPT if word in about}
        for name, about in described.items()
        if name not in OF_THE_POD
    }
    texts = {"type": "array", "items": {"type": "string", "pattern": "^[^,]+$"}}
    effects = {"enum": [effect.value for effect in TaintEffect]}
    levels = TaintPolicy(domain="any").effects
    forms = {
        "device-plugin": texts,
        "extra-mount": texts,
        "taint-effect": _object({str(level): effects for level in levels}),
    }
    for name, form in forms.items():
        del offered[name]["type"], offered[name]["default"]
        offered[name] |= form
    return offered


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def schema_text() -> str:
    """The schema with what code and comments say as they are now."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    properties = schema["properties"]
    properties["flags"] = _object(flags())
    options = {"$ref": "#/$defs/class"}
    families = _object({family.value: options for family in ChipFamily})
    properties["deviceClasses"]["properties"]["families"] = families
    properties["simulator"]["properties"]["profile"]["enum"] = profile_names()
    for value in values():
        place = schema
        for step in value.path:
            place = place["properties"][step]
        place["description"] = value.meaning
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def page_text() -> str:
    """docs/helm.md with its tables as they are now."""
    page = PAGE.read_text(encoding="utf-8")
    page = with_table(page, _VALUES_HEAD, _value_rows())
    return with_table(page, _FLAGS_HEAD, _flag_rows())


def _value_rows() -> Iterator[str]:
    for value in values():
        yield f"| `{'.'.join(value.path)}` | {_shown(value.default)} | {_cell(value.meaning)} |"


def _flag_rows() -> Iterator[str]:
    for name, about in flags().items():
        default = _shown(about.get("default", ""))
        yield f"| `{name}` | {_taken(about)} | {default} | {_cell(about['description'])} |"


def _taken(about: Mapping[str, Any]) -> str:
    if "enum" in about:
        return ", ".join(f"`{each}`" for each in about["enum"])
    words = {
        "array": "a list",
        "boolean": "`true` or `false`",
        "integer": "a whole number",
        "number": "a number",
        "object": "effects by level",
        "string": "a text",
    }
    return words[about["type"]]


def _shown(default: Any) -> str:
    if default in ("", [], {}):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
