"""Opaque configs, and the message with which the driver refuses each.

The policy of the API server refuses the same configs, and names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trio_npu_dra.agent.config.model import OURS

GOOD: Final = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}
HEAD: Final = "write apiVersion npu.huawei.com/v1alpha1 and kind NpuConfig"
KNOWN: Final = (
    "apiVersion, kind, sharing, containerLibraries, driverMounts, ubFiles, visibleDevices, env"
)
NAME: Final = "write a name of letters, digits and _ that does not begin with a digit"
UNPRINTABLE: Final = "a text with unprintable characters"
VALUE: Final = "write a text without NUL, in quotes if it looks like something else"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One config.

    `words` say what is wrong with it, each problem at its own; none if the config is accepted.
    """

    parameters: dict[str, Any]
    words: tuple[str, ...] = ()

    def refusal(self, origin: str) -> str:
        """The whole message of a refusal, of an object of that kind; at most three problems."""
        return f"opaque config in the {origin}: {'; '.join(self.words)}"

    def is_named(self, message: str) -> bool:
        """Whether the policy's message names a wrong field, or the object that has it."""
        fields = (re.split(r"\W", words, maxsplit=1)[0] for words in self.words)
        return message.startswith("NpuConfig") and any(field in message for field in fields)


def with_env(*variables: Any) -> dict[str, Any]:
    """A config with these variables."""
    return GOOD | {"env": list(variables)}


def named(name: Any, value: Any = "1") -> dict[str, Any]:
    """A variable."""
    return {"name": name, "value": value}


def wrong(parameters: dict[str, Any], *words: str) -> Case:
    """A config that is refused."""
    return Case(parameters=parameters, words=words)


VALUES: Final[Mapping[str, Any]] = {
    "null": None,
    "true": True,
    "0": 0,
    "a number": 0.5,
    '"word"': "word",
    "a list": [],
    "an object": {},
}
"""One of each type, by what a refusal calls it."""
FIELDS: Final = {
    "apiVersion": (None, HEAD),
    "kind": (None, HEAD),
    "sharing": (dict, "write an object with strategy"),
    "sharing.strategy": (None, "write Exclusive or Shared"),
    "containerLibraries": (None, "write ldcache, env or none"),
    "driverMounts": (bool, "write true or false"),
    "ubFiles": (bool, "write true or false"),
    "visibleDevices": (None, "write void or physical"),
    "env": (list, "write a list in which each is an object with name and value"),
    "env[0]": (dict, "write an object with name and value"),
    "env[0].name": (str, NAME),
    "env[0].value": (str, VALUE),
}
"""The type of those of `VALUES` that a field may have, if any, and what to write."""


def with_value(field: str, value: Any) -> dict[str, Any]:
    """A config that has the value in a field."""
    inner: dict[str, dict[str, Any]] = {
        "sharing.strategy": {"sharing": {"strategy": value}},
        "env[0]": {"env": [value]},
        "env[0].name": {"env": [named(value)]},
        "env[0].value": {"env": [named("A", value)]},
    }
    return GOOD | inner.get(field, {field: value})


def told(field: str, words: str, *values: Any) -> dict[str, Case]:
    """Cases in which a field has a value; `{}` in the words is the value."""
    return {
        f"{field}: {value!r:.30}": wrong(with_value(field, value), f"{field} {words}".format(value))
        for value in values
    }


def unknown(path: str, known: str = KNOWN) -> str:
    """The message about an unknown field."""
    return f"{path} is not known to this driver: remove it (known: {known})"


RIGHT: Final = {
    "nothing but its kind": Case(parameters=GOOD),
    "everything": Case(
        parameters=GOOD
        | {
            "sharing": {"strategy": "Shared"},
            "containerLibraries": "env",
            "driverMounts": False,
            "ubFiles": False,
            "visibleDevices": "physical",
            "env": [named("A"), named("_b2", ""), named("C" * 128, "\n企" * 512)],
        }
    ),
    **{
        f"{field}: {value}": Case(parameters=with_value(field, value))
        for field, values in {
            "sharing.strategy": ("Exclusive", "Shared"),
            "containerLibraries": ("ldcache", "env", "none"),
            "driverMounts": (True, False),
            "ubFiles": (True, False),
            "visibleDevices": ("void", "physical"),
        }.items()
        for value in values
    },
    "empty objects and lists": Case(parameters=GOOD | {"sharing": {}, "env": []}),
    "as many variables as there may be": Case(
        parameters=with_env(*(named(f"V{n}") for n in range(32)))
    ),
}

WRONG: Final[Mapping[str, Case]] = {
    **{
        f"{field} as {shown}": wrong(with_value(field, value), f"{field} is {shown}: {write}")
        for field, (right, write) in FIELDS.items()
        for shown, value in VALUES.items()
        if type(value) is not right
    },
    **told("apiVersion", f'is "{{}}": {HEAD}', "v1", "npu.huawei.com/v1"),
    **told("kind", f'is "{{}}": {HEAD}', "GpuConfig", "配置", "企" * 60, "\"a\\b'"),
    **told("kind", f'is "{"x" * 60}...": {HEAD}', "x" * 61),
    **told("sharing.strategy", 'is "{}": write Exclusive or Shared', "shared", ""),
    **told("env[0].name", f'is "{{}}": {NAME}', "", "1C", "A=B", "A-B", "Ä"),
    **told("env[0].name", f"is {UNPRINTABLE}: {NAME}", "A\n", "A\0"),
    **told("env[0].name", "has 129 characters: write at most 128", "A" * 129, "企" * 129),
    **told("env[0].name", 'is "{}", which the driver sets itself: write another name', *OURS),
    **told("env[0].value", f"is {{}}: {VALUE}", -(2**63), 2**63 - 1),
    **told("env[0].value", f"is a number: {VALUE}", -(2**63) - 1, 2**63),
    **told("env[0].value", f"is {UNPRINTABLE}: {VALUE}", "a\0b"),
    **told("env[0].value", "has 1025 characters: write at most 1024", "x" * 1025, "企" * 1025),
    "nothing": wrong({}, f"apiVersion is missing: {HEAD}", f"kind is missing: {HEAD}"),
    "no kind": wrong({"apiVersion": GOOD["apiVersion"]}, f"kind is missing: {HEAD}"),
    "no apiVersion": wrong({"kind": "NpuConfig"}, f"apiVersion is missing: {HEAD}"),
    "unknown field": wrong(GOOD | {"timeSlice": "short"}, unknown("timeSlice")),
    "unknown empty field": wrong(GOOD | {"timeSlice": None}, unknown("timeSlice")),
    "unknown field without a name": wrong(GOOD | {"": 1}, unknown('""')),
    "unknown long field": wrong(GOOD | {"x" * 100: 1}, unknown("x" * 60 + "...")),
    "unknown unprintable field": wrong(
        GOOD | {"ki\u202end": 1}, unknown("(a name with unprintable characters)")
    ),
    "field with a wrong letter": wrong(GOOD | {"Kind": "NpuConfig"}, unknown("Kind")),
    "several unknown fields": wrong(
        GOOD | {"zone": 1, "cores": 4}, unknown("zone"), unknown("cores")
    ),
    "unknown field of sharing": wrong(
        GOOD | {"sharing": {"strategy": "Exclusive", "maxClients": 4}},
        unknown("sharing.maxClients", "strategy"),
    ),
    "unknown field of a variable": wrong(
        with_env(named("A"), named("B") | {"x": 1}), unknown("env[1].x", "name, value")
    ),
    "a variable without a name": wrong(with_env({"value": "1"}), f"env[0].name is missing: {NAME}"),
    "a variable without a value": wrong(
        with_env({"name": "A"}), f"env[0].value is missing: {VALUE}"
    ),
    "a value from elsewhere": wrong(
        with_env({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        f"env[0].value is missing: {VALUE}",
        unknown("env[0].valueFrom", "name, value"),
    ),
    "a name twice": wrong(
        with_env(named("A"), named("B"), named("A", "2"), named("B")),
        'env[2].name is "A", as is env[0].name: write each name once',
    ),
    "too many variables": wrong(
        with_env(*(named(f"V{n}") for n in range(33))), "env has 33 entries: write at most 32"
    ),
    "more than three problems": wrong(
        {"kind": [], "env": [named("1"), {}], "note": ""},
        f"apiVersion is missing: {HEAD}",
        f"kind is a list: {HEAD}",
        f'env[0].name is "1": {NAME}',
        "and 3 more",
    ),
}
"""The API server itself refuses parameters that are no object."""

CASES: Final = {**RIGHT, **WRONG}
