"""Messages about wrong configs."""

from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from trio_npu_dra.agent.config.model import API_VERSION, KIND, NpuConfig, Sharing, Variable
from trio_npu_dra.kit.base.errors import InvalidOpaqueConfig

PROBLEMS_SHOWN: Final = 3
SHOWN: Final = 60  # characters of a name or value

_HEAD: Final = f"apiVersion {API_VERSION} and kind {KIND}"
_WRITE: Final = {
    "": "an object with apiVersion and kind",
    "apiVersion": _HEAD,
    "kind": _HEAD,
    "sharing": "an object with strategy",
    "sharing.strategy": "Exclusive or Shared",
    "containerLibraries": "ldcache, env or none",
    "driverMounts": "true or false",
    "ubFiles": "true or false",
    "visibleDevices": "void or physical",
    "env": "a list in which each is an object with name and value",
    "env[]": "an object with name and value",
    "env[].name": "a name of letters, digits and _ that does not begin with a digit",
    "env[].value": "a text without NUL, in quotes if it looks like something else",
}
"""What to write into each field."""
_OBJECTS: Final[dict[str, type[BaseModel]]] = {"": NpuConfig, "sharing": Sharing, "env[]": Variable}

Path: TypeAlias = tuple[str | int, ...]


def parse_config(parameters: Any, *, origin: str) -> NpuConfig:
    """Check the parameters of an opaque config of the kind *origin*.

    Raises:
        InvalidOpaqueConfig: Names the wrong fields, their values, and what to do.
    """
    try:
        return NpuConfig.model_validate(parameters)
    except ValidationError as error:
        found = error.errors()
    texts = [_explain(details) for details in found[:PROBLEMS_SHOWN]]  # an Event has little room
    if len(found) > len(texts):
        texts.append(f"and {len(found) - len(texts)} more")
    raise InvalidOpaqueConfig(f"opaque config in the {origin}: {'; '.join(texts)}")


def show(value: Any) -> str:
    """A value, in one short line."""
    if isinstance(value, str):
        text = _cut(value)
        return f'"{text}"' if text.isprintable() else "a text with unprintable characters"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return str(value)
    if value is None:
        return "null"
    kinds = {list: "a list", dict: "an object"}
    return next((words for kind, words in kinds.items() if isinstance(value, kind)), "a number")


def _show_name(name: str) -> str:
    """The name of a field as a person wrote it, in one short line."""
    text = _cut(name) or '""'
    return text if text.isprintable() else "(a name with unprintable characters)"


def _show_path(path: Path) -> str:
    """`env[2].name`."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{_show_name(step)}" for step in path)
    return "".join(steps).removeprefix(".") or "parameters"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _field(path: Path) -> str:
    """`env[].name`."""
    return "".join("[]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _explain(details: ErrorDetails) -> str:
    path, value, context = details["loc"], details["input"], details.get("ctx", {})
    kind, here, shown = details["type"], _show_path(path), show(value)
    if kind == "extra_forbidden":
        fields = _OBJECTS[_field(path[:-1])].model_fields.values()
        known = ", ".join(str(field.alias) for field in fields)
        text = f"{here} is not known to this driver: remove it (known: {known})"
    elif kind == "missing":
        text = f"{here} is missing: write {_WRITE[_field(path)]}"
    elif kind in {"string_too_long", "too_long"}:
        things = "entries" if kind == "too_long" else "characters"
        text = f"{here} has {len(value)} {things}: write at most {context['max_length']}"
    elif kind == "reserved":
        text = f"{here} is {shown}, which the driver sets itself: write another name"
    elif kind == "repeated":
        first = _show_path((*path, context["first"], "name"))
        path = (*path, context["index"], "name")
        shown = show(context["name"])
        text = f"{_show_path(path)} is {shown}, as is {first}: write each name once"
    else:
        text = f"{here} is {shown}: write {_WRITE[_field(path)]}"
    return text
