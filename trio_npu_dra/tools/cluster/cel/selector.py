"""One selector held against one device: yes, no, it fails, or we cannot decide.

The library evaluates; here is what keeps it to what it does as the scheduler does. Whatever is not
known to be equal is `Undecided`. For a claim it runs in a process of its own, which the kernel ends
when it takes too much: whoever may create a claim writes its selectors. The API server bounds what
they cost the scheduler; the library here needs minutes, or all memory, for some that it accepts,
and cannot be interrupted.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from subprocess import DEVNULL, PIPE, Popen
from typing import IO, Any, Final, TypeAlias

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


# --- in a process of its own ----------------------------------------------------------------------

SECONDS: Final = 5
"""CPU time for all selectors of one explanation; each takes some 60 µs for each set of facts."""
_MEMORY: Final = 1 << 30


@contextmanager
def apart() -> Iterator[Decide]:
    """What decides whether a selector admits a device, as `matches` does, within the limits.

    Of devices that are alike in all that a selector reads it asks once: a fleet has 40,000. Once a
    limit is reached, it raises `Undecided` whatever else it is asked.
    """
    command = [sys.executable, "-P", "-m", __name__, str(SECONDS)]
    with Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL) as process:
        questions, answers = process.stdin, process.stdout
        assert questions
        assert answers
        known: dict[tuple[str, ...], tuple[bool | None, str]] = {}

        def decide(expression: str, driver: str, device: Device) -> bool:
            seen = as_read(expression, device)
            asked = expression, driver, seen.model_dump_json(by_alias=True, exclude_none=True)
            if asked not in known:
                known[asked] = _ask(questions, answers, asked)
            verdict, words = known[asked]
            if verdict is None:
                raise Undecided(words)
            if words:
                raise SelectorFails(words)
            return verdict

        try:
            yield decide
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # of a question that it did not live to read
                questions.close()


def _ask(
    questions: IO[bytes], answers: IO[bytes], asked: tuple[str, ...]
) -> tuple[bool | None, str]:
    with suppress(BrokenPipeError):
        questions.write(json.dumps(asked).encode() + b"\n")
        questions.flush()
    answer = answers.readline()
    if not answer.endswith(b"\n"):
        return None, f"the CEL takes more than {SECONDS} s or {_MEMORY >> 30} GiB to evaluate here"
    verdict, words = json.loads(answer)
    return verdict, words


def _answer(expression: str, driver: str, facts: str) -> tuple[bool | None, str]:
    """The verdict, None for undecided; and why there is none, or why it fails."""
    try:
        return matches(expression, driver, Device.model_validate_json(facts)), ""
    except SelectorFails as error:
        return False, str(error)
    except Undecided as error:
        return None, str(error)


def _serve(seconds: int) -> None:
    """Answer questions until there are no more, or the kernel ends this process."""
    limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_AS: _MEMORY, resource.RLIMIT_CORE: 0}
    for limit, most in limits.items():
        with suppress(OSError, ValueError):  # the limit is lower already, or this kernel has none
            resource.setrlimit(limit, (most, most))
    for question in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(*json.loads(question))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
