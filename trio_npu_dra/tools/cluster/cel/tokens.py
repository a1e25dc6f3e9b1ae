"""CEL in tokens, and the rewriting of what the CEL library does not parse.

The library knows neither optional access (`a.?b`, `a[?b]`) nor `cel.bind`, and no map has a value
for keys that it does not have, as `device.attributes` has for domains in the scheduler. All three
are postfix or have brackets around them, so tokens are enough to write them as calls of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from trio_npu_dra.tools.cluster.cel import Undecided

OPTIONAL_KEY: Final = "npuOptionalKey"
DOMAIN: Final = "npuDomain"

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
    |(?P<string>[bB]?[rR]?(?:'''.*?'''|\"\"\".*?\"\"\")|[bB]?[rR]?
       (?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+|\.\d+|\d+)(?:[eE][+-]?\d+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>&&|\|\||[=!<>]=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"(": ")", "[": "]", "[?": "]", "{": "}"}
_PLAIN: Final = re.compile(r"""(["'])([\w./-]+)\1""")
"""A string that stands for itself: without prefix, escapes or three quotes."""


@dataclass(frozen=True, slots=True)
class CelToken:
    """A word of CEL: *kind* is `string`, `number`, `name` or `mark`."""

    kind: str
    text: str


_DEVICE: Final = CelToken("name", "device")


def tokens(expression: str) -> tuple[CelToken, ...]:
    """The words of an expression, without space and comments.

    Raises:
        Undecided: It has a character that no word begins with.
    """
    found, at = [], 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            raise Undecided(f"the CEL is not understood from {expression[at : at + 20]!r} on")
        if match.lastgroup != "space":
            found.append(CelToken(str(match.lastgroup), match.group()))
        at = match.end()
    return tuple(found)


def read_names(words: Sequence[CelToken]) -> frozenset[str] | None:
    """The names, without domains, of the attributes and capacities that an expression can read.

    Returns:
        None if they are not known: domain and name are not both written out at each `device`.

    Raises:
        Undecided: A bracket is not closed.
    """
    names, at = set(), 0
    while at < len(words):
        if _texts(words, at, 4) == ("cel", ".", "bind", "("):
            end = _end(words, at + 3)
            name, value, body = (*_parts(words[at + 4 : end]), (), (), ())[:3]
            keys, after = _keys(value, 1)
            if len(name) == 1 and value[:1] == [_DEVICE] and len(keys) < 3 and after == len(value):
                words = [*words[:at], *_replaced(body, name[0], value), *words[end + 1 :]]
                continue
        if words[at] == _DEVICE and _texts(words, at - 1, 1) not in {(".",), (".?",)}:
            kind, *keys = (*_keys(words, at + 1)[0], "")
            if kind in {"attributes", "capacity"} and len(keys) > 2:
                names.add(keys[1])
            elif kind not in {"driver", "allowMultipleAllocations"}:
                return None
        at += 1
    return frozenset(names)


def _keys(words: Sequence[CelToken], at: int) -> tuple[list[str], int]:
    """What follows a name, up to a method: `.a`, `["b"]` or optional; and where that ends."""
    keys: list[str] = []
    while True:
        opening, key, closing = (*_texts(words, at, 3), "", "", "")[:3]
        plain = _PLAIN.fullmatch(key)
        if opening in {".", ".?"} and closing != "(":
            keys.append(key)
            at += 2
        elif opening in {"[", "[?"} and closing == "]" and plain:
            keys.append(plain[2])
            at += 3
        else:
            return keys, at


def rewritten(words: Sequence[CelToken]) -> str:
    """The expression in what the library parses.

    Raises:
        Undecided: It uses one of the rewritten forms in a way that is not understood.
    """
    return " ".join(_partitions(words))


def _partitions(words: Sequence[CelToken]) -> Iterator[str]:
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "-" and _is_sign(words, at) and _word(words, at + 1).kind != "number":
            raise Undecided("a minus sign that is before no number")  # the library negates more
        if text == ".?":
            name = _word(words, at + 1)
            if name.kind != "name":
                raise Undecided("optional access is followed by no name")
            yield f".{OPTIONAL_KEY}('{name.text}')"
            _refuse_chain(words, at + 2)
            at += 2
        elif text == "[?":
            end = _end(words, at)
            yield f".{OPTIONAL_KEY}({rewritten(words[at + 1 : end])})"
            _refuse_chain(words, end + 1)
            at = end + 1
        elif text == "cel" and _texts(words, at + 1, 3) == (".", "bind", "("):
            end = _end(words, at + 3)
            yield _bound(words[at + 4 : end])
            at = end + 1
        elif words[at] == _DEVICE and words[at - 1 : at] != [CelToken("mark", ".")]:
            partition, at = _device(words, at)
            yield partition
        else:
            yield text
            at += 1


def _is_sign(words: Sequence[CelToken], at: int) -> bool:
    """Whether a minus is the sign of what follows, not a difference."""
    return at == 0 or (words[at - 1].kind == "mark" and words[at - 1].text not in {")", "]", "}"})


def _device(words: Sequence[CelToken], at: int) -> tuple[str, int]:
    """`device.attributes[...]` and `device.capacity[...]`: a map also for domains without facts."""
    dot, name, after = (*_texts(words, at + 1, 3), "", "", "")[:3]
    if dot != "." or name not in {"attributes", "capacity"}:
        if dot != ".":
            raise Undecided("`device` is used as a whole")
        return "device", at + 1
    is_call = _word(words, at + 5).text == "("
    if after == "." and _word(words, at + 4).kind == "name" and not is_call:
        return f"device.{name}.{DOMAIN}('{words[at + 4].text}')", at + 5
    if after not in {"[", "[?"}:
        if _texts(words, at - 1, 1) == ("in",):
            return f"device.{name}", at + 3
        raise Undecided(f"`device.{name}` is used as a whole")
    end = _end(words, at + 3)
    key = rewritten(words[at + 4 : end])
    if after == "[":
        return f"device.{name}.{DOMAIN}({key})", end + 1
    _refuse_chain(words, end + 1, may_be_optional=True)
    return _optional_domain(words, name, key, end)


def _optional_domain(words: Sequence[CelToken], name: str, key: str, end: int) -> tuple[str, int]:
    """`device.attributes[?d]`: the scheduler's map has a value for each domain, so it is there."""
    if _texts(words, end + 1, 1) in {(".?",), ("[?",)}:
        return f"device.{name}.{DOMAIN}({key})", end + 1
    return f"optional.of(device.{name}.{DOMAIN}({key}))", end + 1


def _refuse_chain(words: Sequence[CelToken], at: int, *, may_be_optional: bool = False) -> None:
    """Refuse `a.?b.c`, where the second access is optional without saying so."""
    after = _texts(words, at, 3)
    is_call = len(after) == 3 and after[0] == "." and after[2] == "("
    if after[:1] == ("[",) or (after[:1] == (".",) and not is_call):
        raise Undecided("an access that follows an optional access")
    if not may_be_optional and after[:1] in {(".?",), ("[?",)}:
        raise Undecided("an access that follows an optional access")


def _bound(words: Sequence[CelToken]) -> str:
    """cel.bind(name, value, body): the body for the one element of a list."""
    parts = list(_parts(words))
    if len(parts) != 3 or len(parts[0]) != 1 or parts[0][0].kind != "name":
        raise Undecided("cel.bind has other arguments than name, value and body")
    (name,), value, body = parts
    if [word.text for word in value] in (
        ["device", ".", "attributes"],
        ["device", ".", "capacity"],
    ):
        return rewritten(_replaced(body, name, value))
    return f"[{rewritten(value)}].map({name.text}, {rewritten(body)})[0]"


def _replaced(
    body: Sequence[CelToken], name: CelToken, value: Sequence[CelToken]
) -> list[CelToken]:
    found: list[CelToken] = []
    for at, word in enumerate(body):
        is_field = at > 0 and body[at - 1].text in {".", ".?"}
        found += value if word == name and not is_field else [word]
    return found


def _parts(words: Sequence[CelToken]) -> Iterator[Sequence[CelToken]]:
    """What is between the commas."""
    start = at = 0
    while at < len(words):
        if words[at].text == ",":
            yield words[start:at]
            start = at + 1
        at = _end(words, at) + 1 if words[at].text in _CLOSING else at + 1
    yield words[start:]


def _end(words: Sequence[CelToken], opening: int) -> int:
    """Where the bracket is closed."""
    open_: list[str] = []
    for at in range(opening, len(words)):
        text = words[at].text
        if text in _CLOSING and words[at].kind == "mark":
            open_.append(_CLOSING[text])
        elif words[at].kind == "mark" and open_ and text == open_[-1]:
            open_.pop()
            if not open_:
                return at
    raise Undecided("a bracket is not closed")


def _word(words: Sequence[CelToken], at: int) -> CelToken:
    return words[at] if at < len(words) else CelToken("mark", "")


def _texts(words: Sequence[CelToken], at: int, count: int) -> tuple[str, ...]:
    return tuple(word.text for word in words[max(at, 0) : at + count]) if at >= 0 else ()
