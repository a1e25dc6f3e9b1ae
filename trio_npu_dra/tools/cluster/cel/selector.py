"""One selector held against one device: yes, no, it fails, or we cannot decide.

The library evaluates; here is what keeps it to what it does as the scheduler does. Whatever is not
known to be equal is `Undecided`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import cel

from trio_npu_dra.kit.api.objects import Device
from trio_npu_dra.tools.cluster.cel import SelectorFails, Undecided
from trio_npu_dra.tools.cluster.cel.functions import FUNCTIONS, quantity, version
from trio_npu_dra.tools.cluster.cel.tokens import CelToken, read_names, rewritten, tokens

logging.getLogger("cel").setLevel(logging.CRITICAL + 1)  # errors in our functions are answers

Decide: TypeAlias = Callable[[str, str, Device], bool]
"""`matches`, or what does as it does."""

_OPERATORS: Final = frozenset(
    (
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "_-_", "_*_", "_/_", "_%_", "-_"),
        *("!_", "_&&_", "_||_", "_?_:_", "_[_]", "@in", "@not_strictly_false"),
    )
)
_SAME: Final = frozenset(
    (
        *("size", "contains", "startsWith", "endsWith", "matches", "int", "uint", "double", "dyn"),
        *("of", "none", "hasValue", "value", "orValue"),
    )
)
"""Functions of the library that do what the scheduler's do, given ASCII."""
_KNOWN: Final = _OPERATORS | _SAME | frozenset(FUNCTIONS)
_LENIENT: Final = frozenset(("bind", "all", "exists"))
"""Macros in which the scheduler can pass over an error with which the library ends."""
_VERSION_METHODS: Final = frozenset(
    ("isGreaterThan", "isLessThan", "compareTo", "major", "minor", "patch")
)


@dataclass(frozen=True, slots=True)
class _Compiled:
    words: tuple[CelToken, ...]
    program: cel.Program


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> _Compiled:
    """The program of an expression.

    Raises:
        Undecided: It has what the library, or this package, does not know.
    """
    words = tokens(expression)
    try:
        program = cel.compile(rewritten(words))
    except ValueError as error:
        raise Undecided("the CEL library does not parse it") from error
    unknown = [name for name in program.functions() if name not in _KNOWN]
    if unknown:
        raise Undecided(f"this program does not implement the CEL function {', '.join(unknown)}")
    return _Compiled(words, program)


def names_in(expression: str) -> frozenset[str]:
    """The names that an expression has, also as strings: those of attributes among them."""
    try:
        words = tokens(expression)
    except Undecided:
        return frozenset()
    return frozenset(word.text.strip("\"'") for word in words if word.kind in {"name", "string"})


@lru_cache(maxsize=1024)
def _read_names(expression: str) -> frozenset[str] | None:
    try:
        return read_names(list(tokens(expression)))
    except Undecided:
        return None


def as_read(expression: str, device: Device) -> Device:
    """The device with what the selector can read of it: it says the same of all that are equal."""
    names = _read_names(expression)
    attributes, capacity = (
        {
            name: fact
            for name, fact in facts.items()
            if names is None or name.rpartition("/")[2] in names
        }
        for facts in (device.attributes, device.capacity)
    )
    return Device(
        name="any",
        attributes=attributes,
        capacity=capacity,
        allow_multiple_allocations=device.allow_multiple_allocations,
    )


def matches(expression: str, driver: str, device: Device) -> bool:
    """Whether the selector admits the device; attributes without a domain have the driver's.

    Raises:
        SelectorFails: It fails for this device, in the scheduler too.
        Undecided: We cannot tell.
    """
    compiled = _compiled(expression)
    _refuse_differences(compiled.words, device)
    context = cel.Context(variables={"device": as_cel(driver, device)}, functions=dict(FUNCTIONS))
    try:
        answer = compiled.program.execute(context)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        lenient = [word.text for word in compiled.words if word.text in _LENIENT]
        if lenient:
            raise Undecided(f"{lenient[0]} around something that fails") from error
        if "Undefined variable" in str(error):
            raise Undecided("this program does not know a name in it") from error
        raise SelectorFails(_why(error)) from error
    if not isinstance(answer, bool):
        raise SelectorFails("it is neither true nor false")
    return answer


def _why(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no such key: {str(error.args[0]).strip(chr(39))}"
    if isinstance(error, TypeError):
        return "no such overload"
    text = str(error).partition(". Check function")[0]
    return text.partition("Python function call failed: ")[2].partition(": ")[2] or text


def _refuse_differences(words: tuple[CelToken, ...], device: Device) -> None:
    """Refuse what the library evaluates in another way than the scheduler.

    It counts bytes where the scheduler counts characters, and a version equals no string where the
    scheduler fails.
    """
    texts = [word.text for word in words]
    values = [one.string for one in device.attributes.values() if one.string is not None]
    is_counted = "size" in texts or "matches" in texts
    if is_counted and not all(text.isascii() for text in (*texts, *values)):
        raise Undecided("there are letters in it or in the device that are not ASCII")
    lists = {name for name, one in device.attributes.items() if one.value is None}
    versions = {name for name, one in device.attributes.items() if one.version is not None}
    for name in lists | versions:
        short = name.rpartition("/")[2]
        for at, word in enumerate(words):
            if word.text.strip("\"'") != short or not _is_value(texts, at):
                continue
            if name in lists:
                raise Undecided(f"the attribute {name} is a list")
            raise Undecided(f"the version {name} is compared as if it were a string")


def _is_value(texts: list[str], at: int) -> bool:
    """Whether the attribute named there is used as a value, other than by a version's method."""
    after = texts[at + 1 : at + 3]
    if after[:1] == ["]"]:
        after = texts[at + 2 : at + 4]
    if after[:1] == ["."] and after[1:] and after[1] in _VERSION_METHODS:
        return False
    if after[:1] == ["in"]:
        return False
    depth, before = 0, at
    while before >= 0:
        depth += (texts[before] == ")") - (texts[before] == "(")
        if depth < 0:
            return texts[before - 1] != "has"
        before -= 1
    return True


def as_cel(driver: str, device: Device) -> dict[str, Any]:
    """The device as the variable `device`."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes.items():
        domain, _, short = name.rpartition("/")
        value: Any = attribute.value
        if attribute.version is not None:
            value = version(attribute.version)
        attributes.setdefault(domain or driver, {})[short] = value
    capacity: dict[str, Mapping[str, Any]] = {}
    for name, one in device.capacity.items():
        domain, _, short = name.rpartition("/")
        capacity.setdefault(domain or driver, {})
        capacity[domain or driver] = {**capacity[domain or driver], short: quantity(one.value)}
    return {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": bool(device.allow_multiple_allocations),
    }
