"""A setting as people see it: its flag, its variable, what it takes, and why a value is refused.

All is read from the field of the settings; its description is the help of the flag.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from trio_npu_dra.kit.base.command_line import must_be_one_of

ENVIRONMENT_PREFIX: Final = "NPU_DRA_"
GROUP: Final = "group"
"""The name of a field's group in its `json_schema_extra`."""


@dataclass(frozen=True, slots=True)
class Form:
    """Annotates a type: how its values are called.

    Attributes:
        metavar: What stands for a value in the help.
        expected: What a value must be, where neither limits nor a validator say that.
        unit: The plural of what is counted.
    """

    metavar: str
    expected: str = ""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, and its environment variable.

    Attributes:
        name: On the command line.
        variable: In the environment.
        group: The heading below which it is shown.
        metavar: What stands for a value.
        choices: All values, where there are few.
        limits: The least and the greatest number, with their unit; empty for other values.
        expected: What a value must be; empty for any text.
        default: The value without flag and variable, empty for none; None if one is required.
        description: What it does, without a full stop.
    """

    name: str
    variable: str
    group: str
    metavar: str
    choices: tuple[str, ...]
    limits: str
    expected: str
    default: str | None
    description: str

    @property
    def help(self) -> str:
        """What it does, its limits, default and variable."""
        default = "required" if self.default is None else f"default: {self.default or 'none'}"
        facts = "; ".join(filter(None, (self.limits, default, self.variable)))
        return f"{self.description} ({facts})"

    def refusal(self, value: str) -> str:
        """Why *value*, which has another form, is refused."""
        if self.choices:
            return must_be_one_of(self.choices, value)
        return f"must be {self.expected}"


def flag(field: str) -> str:
    """The command line flag of a field: `cdi_root` is `--cdi-root`."""
    return "--" + field.replace("_", "-")


def environment_variable(field: str) -> str:
    """The environment variable of a field: `cdi_root` is `NPU_DRA_CDI_ROOT`."""
    return ENVIRONMENT_PREFIX + field.upper()


def flags(settings: type[BaseModel]) -> Iterator[tuple[str, Flag]]:
    """The fields of *settings*, each with its flag, in their order."""
    for name, field in settings.model_fields.items():
        yield name, flag_of(name, field)


def flag_of(name: str, field: FieldInfo) -> Flag:
    """The flag of a field."""
    kind, metadata = _type(field)
    form = next((each for each in metadata if isinstance(each, Form)), Form(metavar="TEXT"))
    choices = _choices(kind)
    limits = _limits(metadata, form.unit)
    number = "a whole number" if kind is int else "a number"
    assert isinstance(field.json_schema_extra, dict)
    return Flag(
        name=flag(name),
        variable=environment_variable(name),
        group=str(field.json_schema_extra[GROUP]),
        metavar=f"{{{','.join(choices)}}}" if choices else form.metavar,
        choices=choices,
        limits=limits,
        expected=f"{number} from {limits}" if limits else form.expected,
        default=None if field.is_required() else _text(field.default),
        description=field.description or "",
    )


def add_flags(parser: argparse.ArgumentParser, settings: type[BaseModel]) -> None:
    """Add the flags of *settings* to *parser*, in groups; values stay texts for `load`."""
    groups: dict[str, argparse._ArgumentGroup] = {}
    for field, each in flags(settings):
        if each.group not in groups:
            groups[each.group] = parser.add_argument_group(each.group)
        groups[each.group].add_argument(each.name, dest=field, metavar=each.metavar, help=each.help)
    parser.usage = "%(prog)s [flags]"  # there are more than anybody reads in a row


def refusals(
    settings: type[BaseModel], error: ValidationError, origins: Mapping[str, str]
) -> Iterator[str]:
    """What is wrong with the fields of *settings*; *origins* has the flag or variable of each."""
    for problem in error.errors():
        name, value = str(problem["loc"][0]), problem["input"]
        if problem["type"] == "missing":
            yield f"{flag(name)} is missing: set it or {environment_variable(name)}"
        elif problem["type"] == "value_error":
            yield f"{origins[name]}={value}: {problem['msg'].removeprefix('Value error, ')}"
        else:
            refusal = flag_of(name, settings.model_fields[name]).refusal(value)
            yield f"{origins[name]}={value}: {refusal}"


def _type(field: FieldInfo) -> tuple[Any, list[Any]]:
    """The type of a field without `None`, and what annotates it."""
    kind, metadata = field.annotation, field.metadata
    if NoneType in get_args(kind):
        kind = next(each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
    return kind, metadata


def _choices(kind: Any) -> tuple[str, ...]:
    if kind is bool:
        return ("true", "false")
    return get_args(kind) if get_origin(kind) is Literal else ()


def _limits(metadata: list[Any], unit: str) -> str:
    least = [each.ge for each in metadata if isinstance(each, Ge)]
    most = [each.le for each in metadata if isinstance(each, Le)]
    return " ".join(filter(None, (f"{least[0]} to {most[0]}", unit))) if least and most else ""


def _text(default: Any) -> str:
    match default:
        case None:
            return ""
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
    return str(default)
