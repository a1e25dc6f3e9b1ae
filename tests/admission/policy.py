"""The admission policies of k8s/, evaluated as the API server does, without one.

The CEL library does not parse optional access (`a.?b`, `a[?b]`), which is rewritten as calls, and
does not know some functions of Kubernetes, which are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import cel

from tests.test_manifests import load
from trio_npu_dra.tools.cluster.cel.tokens import CelToken, tokens

AGENT: Final = "system:serviceaccount:ascend-dra:ascend-npu-dra-kubeletplugin"
NODE: Final = "node-a"
ELSEWHERE: Final = "node-b"
_NODE_NAME: Final = "authentication.kubernetes.io/node-name"
_ACCESS: Final = "optionalAccess"
_SIZE: Final = "charactersOf"  # the library's own `size` counts bytes
_CLOSING: Final = {"(": ")", "[": "]", "[?": "]", "{": "}"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the API server is asked to write: by default by the agent of the node `node-a`.

    An UPDATE has both objects, a CREATE only `new`, a DELETE only `old`. `node` is the one that the
    token names, if any.
    """

    resource: str
    group: str = ""
    new: Object | None = None
    old: Object | None = None
    user: str = AGENT
    node: str | None = NODE

    @property
    def operation(self) -> str:
        """As the API server calls it."""
        if self.old is None:
            return "CREATE"
        return "DELETE" if self.new is None else "UPDATE"

    def variables(self) -> Object:
        """The names that every expression knows."""
        about = self.new or self.old or {}
        extra = {_NODE_NAME: [self.node]} if self.node is not None else {}
        return {
            "object": self.new,
            "oldObject": self.old,
            "request": {
                "operation": self.operation,
                "name": about.get("metadata", {}).get("name", ""),
                "kind": {"kind": about.get("kind", "")},
                "resource": {"resource": self.resource},
                "userInfo": {"username": self.user, "extra": extra},
            },
        }


@dataclass(frozen=True, slots=True)
class Policy:
    """A ValidatingAdmissionPolicy."""

    spec: Object
    _variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for each in self.spec.get("variables", []):
            self._variables[each["name"]] = self._rewritten(each["expression"])

    def is_about(self, request: Request) -> bool:
        """Whether the API server asks it about such a request."""
        return any(
            request.group in rule["apiGroups"]
            and request.operation in rule["operations"]
            and request.resource in rule["resources"]
            for rule in self.spec["matchConstraints"]["resourceRules"]
        )

    def refusals(self, request: Request) -> list[str]:
        """Why it refuses a request; nothing if it lets it through."""
        if not self.is_about(request):
            return []
        known = request.variables()
        conditions = self.spec.get("matchConditions", [])
        if not all(self._value(each["expression"], known) for each in conditions):
            return []
        told = [self._refusal(each, known) for each in self.spec["validations"]]
        return [each for each in told if each is not None]

    def _refusal(self, validation: Object, known: Object) -> str | None:
        try:
            passes = self._value(validation["expression"], known)
        except (LookupError, RuntimeError, TypeError, ValueError) as error:  # the library's
            return None if self.spec["failurePolicy"] == "Ignore" else f"not judged: {error}"
        if passes is True:
            return None
        told = self._value(validation.get("messageExpression", '""'), known)
        return str(told or validation["message"])

    def _value(self, expression: str, known: Object) -> Any:
        context = cel.Context(variables=known, functions=dict(_FUNCTIONS))
        return _compiled(self._rewritten(expression)).execute(context)

    def _rewritten(self, expression: str) -> str:
        return " ".join(_partitions(tokens(expression), self._variables))


def policies(*folders: str) -> dict[str, Policy]:
    """The policies in folders below k8s/, by name."""
    return {
        name: Policy(about["spec"])
        for (kind, name), about in load(*folders).items()
        if kind == "ValidatingAdmissionPolicy"
    }


@cache
def _compiled(expression: str) -> cel.Program:
    return cel.compile(expression)


def _partitions(words: Sequence[CelToken], variables: Mapping[str, str]) -> Iterator[str]:
    """An expression in what the library parses, each variable replaced by its own."""
    at, is_optional = 0, False
    while at < len(words):
        text = words[at].text
        after = [word.text for word in words[at + 1 : at + 3]]
        is_call = after[1:] == ["("]
        if text == "variables" and after[:1] == ["."]:
            yield f"({variables[after[1]]})"
            at, is_optional = at + 3, False
        elif text == ".?" or (is_optional and text == "." and not is_call):
            yield f".{_ACCESS}('{after[0]}')"
            at, is_optional = at + 2, True
        elif text == "[?" or (is_optional and text == "["):
            end = _end(words, at)
            yield f".{_ACCESS}({' '.join(_partitions(words[at + 1 : end], variables))})"
            at, is_optional = end + 1, True
        else:
            yield _SIZE if text == "size" and words[at].kind == "name" else text
            at, is_optional = at + 1, False


def _end(words: Sequence[CelToken], opening: int) -> int:
    """Where the bracket is closed."""
    wanted: list[str] = []
    for at in range(opening, len(words)):
        text = words[at].text
        if words[at].kind == "mark" and text in _CLOSING:
            wanted.append(_CLOSING[text])
        elif words[at].kind == "mark" and text == wanted[-1]:
            wanted.pop()
            if not wanted:
                return at
    raise AssertionError("a bracket is not closed")


def _access(holder: Any, key: Any) -> cel.OptionalValue:
    if isinstance(holder, cel.OptionalValue):
        if not holder.has_value():
            return holder
        holder = holder.value()
    if not isinstance(holder, Mapping | list):
        raise TypeError("no such overload")
    is_there = key < len(holder) if isinstance(holder, list) else key in holder
    return cel.OptionalValue.of(holder[key]) if is_there else cel.OptionalValue.none()


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    _ACCESS: _access,
    _SIZE: len,
    "indexOf": lambda items, item: items.index(item),
    "join": lambda texts, between: between.join(texts),
    "lastIndexOf": lambda items, item: len(items) - 1 - items[::-1].index(item),
}
