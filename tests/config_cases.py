"""Opaque configs, and the words in which validate, API server and driver refuse each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

GOOD: Final = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}
HEAD: Final = "write apiVersion npu.huawei.com/v1alpha1 and kind NpuConfig"
FIELDS: Final = (
    "apiVersion, kind, sharing, containerLibraries, driverMounts, ubFiles, visibleDevices, env"
)
NAME: Final = "write a name of letters, digits and _ that does not begin with a digit"
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


def with_env(*variables: Any) -> dict[str, Any]:
    """A config with these variables."""
    return GOOD | {"env": list(variables)}


def named(name: Any, value: Any = "1") -> dict[str, Any]:
    """A variable."""
    return {"name": name, "value": value}


def wrong(parameters: dict[str, Any], *words: str) -> Case:
    """A config that is refused."""
    return Case(parameters=parameters, words=words)


RIGHT: Final = {
    "nothing but its kind": Case(parameters=GOOD),
    "everything": Case(
        parameters=GOOD
        | {
            "sharing": {"strategy": "Exclusive"},
            "containerLibraries": "env",
            "driverMounts": False,
            "env": [named("A"), named("_b2", ""), named("C" * 128, "\n企" * 512)],
        }
    ),
    "empty objects and lists": Case(parameters=GOOD | {"sharing": {}, "env": []}),
    "as many variables as there may be": Case(
        parameters=with_env(*(named(f"V{n}") for n in range(32)))
    ),
}

WRONG: Final[Mapping[str, Case]] = {
    "nothing": wrong({}, f"apiVersion is missing: {HEAD}", f"kind is missing: {HEAD}"),
    "no kind": wrong({"apiVersion": GOOD["apiVersion"]}, f"kind is missing: {HEAD}"),
    "wrong kind": wrong(GOOD | {"kind": "GpuConfig"}, f'kind is "GpuConfig": {HEAD}'),
    "kind of a wrong type": wrong(GOOD | {"kind": 1}, f"kind is 1: {HEAD}"),
    "no apiVersion": wrong({"kind": "NpuConfig"}, f"apiVersion is missing: {HEAD}"),
    "another version": wrong(
        GOOD | {"apiVersion": "npu.huawei.com/v1"}, f'apiVersion is "npu.huawei.com/v1": {HEAD}'
    ),
    "unknown field": wrong(
        GOOD | {"timeSlice": "short"},
        f"timeSlice is not known to this driver: remove it (known: {FIELDS})",
    ),
    "unknown empty field": wrong(
        GOOD | {"timeSlice": None},
        f"timeSlice is not known to this driver: remove it (known: {FIELDS})",
    ),
    "field with a wrong letter": wrong(
        GOOD | {"Kind": "NpuConfig"},
        f"Kind is not known to this driver: remove it (known: {FIELDS})",
    ),
    "several unknown fields": wrong(
        GOOD | {"zone": 1, "cores": 4, "memory": "8Gi"},
        f"cores and 2 more are not known to this driver: remove them (known: {FIELDS})",
    ),
    "unknown field of a long name": wrong(
        GOOD | {"x" * 100: 1},
        f"{'x' * 60}... is not known to this driver: remove it (known: {FIELDS})",
    ),
    "unknown field of an unprintable name": wrong(
        GOOD | {"ki\u202end": 1},
        "(a name with unprintable characters) is not known to this driver: remove it "
        f"(known: {FIELDS})",
    ),
    "sharing in one word": wrong(
        GOOD | {"sharing": "Shared"}, 'sharing is "Shared": write an object with strategy'
    ),
    "sharing left empty": wrong(
        GOOD | {"sharing": None}, "sharing is null: write an object with strategy"
    ),
    "unknown strategy": wrong(
        GOOD | {"sharing": {"strategy": "TimeSlicing"}},
        'sharing.strategy is "TimeSlicing": write Exclusive or Shared',
    ),
    "strategy in small letters": wrong(
        GOOD | {"sharing": {"strategy": "shared"}},
        'sharing.strategy is "shared": write Exclusive or Shared',
    ),
    "strategy as a list": wrong(
        GOOD | {"sharing": {"strategy": ["Shared"]}},
        "sharing.strategy is a list: write Exclusive or Shared",
    ),
    "unknown field of sharing": wrong(
        GOOD | {"sharing": {"strategy": "Exclusive", "maxClients": 4}},
        "sharing.maxClients is not known to this driver: remove it (known: strategy)",
    ),
    "unknown way for libraries": wrong(
        GOOD | {"containerLibraries": "LD_LIBRARY_PATH"},
        'containerLibraries is "LD_LIBRARY_PATH": write ldcache, env or none',
    ),
    "libraries as a flag": wrong(
        GOOD | {"containerLibraries": False},
        "containerLibraries is false: write ldcache, env or none",
    ),
    "mounts as a word": wrong(
        GOOD | {"driverMounts": "no"}, 'driverMounts is "no": write true or false'
    ),
    "mounts as a number": wrong(
        GOOD | {"driverMounts": 0}, "driverMounts is 0: write true or false"
    ),
    "mounts as a fraction": wrong(
        GOOD | {"driverMounts": 0.5}, "driverMounts is a number: write true or false"
    ),
    "variables as an object": wrong(
        GOOD | {"env": {"FOO": "bar"}},
        "env is an object: write a list in which each is an object with name and value",
    ),
    "a variable as a text": wrong(
        with_env(named("A"), "FOO=bar"), 'env[1] is "FOO=bar": write an object with name and value'
    ),
    "a variable without a name": wrong(with_env({"value": "1"}), f"env[0].name is missing: {NAME}"),
    "a variable without a value": wrong(
        with_env({"name": "A"}), f"env[0].value is missing: {VALUE}"
    ),
    "a value from elsewhere": wrong(
        with_env({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}),
        f"env[0].value is missing: {VALUE}",
        "env[0].valueFrom is not known to this driver: remove it (known: name, value)",
    ),
    "a name that begins with a digit": wrong(
        with_env(named("A"), named("B"), named("1C")), f'env[2].name is "1C": {NAME}'
    ),
    "a name that ends a line": wrong(
        with_env(named("A\n")), f"env[0].name is a text with unprintable characters: {NAME}"
    ),
    "a name with an equals sign": wrong(with_env(named("A=B")), f'env[0].name is "A=B": {NAME}'),
    "an empty name": wrong(with_env(named("")), f'env[0].name is "": {NAME}'),
    "a name that is too long": wrong(
        with_env(named("企" * 129)), "env[0].name has 129 characters: write at most 128"
    ),
    "our name": wrong(
        with_env(named("ASCEND_VISIBLE_DEVICES", "0,1")),
        'env[0].name is "ASCEND_VISIBLE_DEVICES", which the driver sets itself: write another name',
    ),
    "the path of libraries": wrong(
        with_env(named("LD_LIBRARY_PATH", "/opt")),
        'env[0].name is "LD_LIBRARY_PATH", which the driver sets itself: write another name',
    ),
    "a name twice": wrong(
        with_env(named("A"), named("B"), named("A", "2"), named("B")),
        'env[2].name is "A", as is env[0].name: write each name once',
    ),
    "a value that is a number": wrong(with_env(named("A", 1)), f"env[0].value is 1: {VALUE}"),
    "a value that is a large number": wrong(
        with_env(named("A", 2**63)), f"env[0].value is a number: {VALUE}"
    ),
    "a value that is true": wrong(with_env(named("A", True)), f"env[0].value is true: {VALUE}"),
    "a value with NUL": wrong(
        with_env(named("A", "a\0b")),
        f"env[0].value is a text with unprintable characters: {VALUE}",
    ),
    "a value that is too long": wrong(
        with_env(named("A", "x" * 1025)), "env[0].value has 1025 characters: write at most 1024"
    ),
    "too many variables": wrong(
        with_env(*(named(f"V{n}", n) for n in range(33))), "env has 33 entries: write at most 32"
    ),
    "a word in a foreign script": wrong(GOOD | {"kind": "配置"}, f'kind is "配置": {HEAD}'),
    "a word that is just not long": wrong(
        GOOD | {"kind": "企" * 60}, f'kind is "{"企" * 60}": {HEAD}'
    ),
    "a long word": wrong(GOOD | {"kind": "企" * 61}, f'kind is "{"企" * 60}...": {HEAD}'),
    "a word with quotes and backslashes": wrong(
        GOOD | {"kind": "\"a\\b'"}, f'kind is ""a\\b\'": {HEAD}'
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
