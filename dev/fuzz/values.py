"""Values that must not break any reader of JSON or bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from hypothesis import strategies as st
from pydantic_core import from_json

DEEP: Final = "<deep>"
"""Stands for a deeply nested value, so that examples stay short: see `expanded`."""

_LEVELS: Final = 50_000

_NUMBERS: Final = (
    *(0, -0.0, 1, -1, 63, 64, 65, 128, 255, 256, 0x7FFD, 0x8000, 0xFFFF, 1 << 31, -(1 << 31)),
    *(0xFFFF_FFFF, 1 << 53, 1 << 63, (1 << 64) - 1, 1 << 64, 10**40, 10**400),
    *(1.5, 1e-300, 1e300, 1.7e12, float("nan"), float("inf"), float("-inf")),
)
_TEXTS: Final = (
    *("", " ", ".", "..", "/", "-", "a", "A" * 300),
    *("..\0", "\0", "\n", "\u2028", "\ud800", "\U0010ffff"),
    *("null", "true", "yes", "0", "-1", "1e999", "NaN", "\u0660", "\N{SNOWMAN}" * 64),
    *("../../etc/passwd", "a/b", "a%2fb", "?", "#", "a\r\nb: c", "${HOME}", "{}", "%s%n", DEEP),
)

texts = st.sampled_from(_TEXTS) | st.text(max_size=12)
numbers = st.sampled_from(_NUMBERS) | st.integers() | st.floats()
leaves = st.none() | st.booleans() | numbers | texts
anything = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value, also what JSON cannot express: NaN, and halves of characters."""


@st.composite
def spoilt(draw: st.DrawFn, document: Any) -> Any:
    """*document* with up to four of its parts replaced, doubled, removed or added to."""
    root = [deepcopy(document)]
    for _ in range(draw(st.integers(0, 4))):
        holder, key = draw(st.sampled_from(list(_places(root))))
        match draw(st.sampled_from(["replace", "other", "double", "remove", "add"])):
            case "replace":
                holder[key] = draw(anything)
            case "other":
                source, name = draw(st.sampled_from(list(_places(root))))
                holder[key] = deepcopy(source[name])
            case "double" if isinstance(holder, list) and holder is not root:
                holder.append(deepcopy(holder[key]))
            case "remove" if holder is not root:
                del holder[key]
            case _ if isinstance(holder[key], dict):
                holder[key][draw(texts)] = draw(anything)
            case _:
                holder[key] = draw(leaves)
    return root[0]


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a document, as a container and a key in it."""
    keys = holder.keys() if isinstance(holder, dict) else range(len(holder))
    for key in keys:
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


@st.composite
def mangled(draw: st.DrawFn, content: bytes) -> bytes:
    """*content* with up to four pieces cut out, overwritten, doubled or inserted."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 16)))
        match draw(st.sampled_from(["cut", "overwrite", "double", "insert", "end"])):
            case "cut":
                del data[start:end]
            case "overwrite":
                data[start:end] = draw(st.binary(max_size=8))
            case "double":
                data[end:end] = data[start:end]
            case "insert":
                data[start:start] = draw(st.binary(max_size=8))
            case _:
                del data[start:]
    return bytes(data)


def encoded(value: Any) -> bytes:
    """A value of `anything` as bytes that look like JSON."""
    return json.dumps(value).encode()


def is_json(data: bytes) -> bool:
    """Whether the parser of this package accepts it: a strict one, not written in Python."""
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def documents(document: Any) -> st.SearchStrategy[bytes]:
    """The bytes of *document*, spoilt as a value or as bytes, or any bytes at all."""
    values = spoilt(document).map(encoded)
    return values | values.flatmap(mangled) | anything.map(encoded) | st.binary(max_size=64)


def expanded(data: bytes) -> bytes:
    """*data* with `DEEP` replaced by the value that it stands for."""
    return data.replace(f'"{DEEP}"'.encode(), b"[" * _LEVELS + b"]" * _LEVELS)
