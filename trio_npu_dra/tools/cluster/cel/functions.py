"""Kubernetes' own CEL functions: quantities, semantic versions, and the maps of a device.

Quantities and versions are maps with one key that no attribute has, because the CEL library takes
no types of ours. A function that is given something else raises `TypeError`, as the scheduler's
"no such overload" does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

from cel import OptionalValue

from trio_npu_dra.kit.api.quantity import parse_quantity
from trio_npu_dra.tools.cluster.cel.tokens import DOMAIN, OPTIONAL_KEY

_QUANTITY: Final = "#quantity"
_VERSION: Final = "#version"
_NUMBER: Final = r"(?:0|[1-9]\d*)"
_SEMVER: Final = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-((?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
    r"(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)


def quantity(text: str) -> dict[str, str]:
    """A quantity as a value of CEL; equal amounts are equal values.

    Raises:
        ValueError: It is no quantity.
    """
    return {_QUANTITY: str(parse_quantity(_string(text)))}


def version(text: str) -> dict[str, str]:
    """A strict semantic version as a value of CEL.

    Raises:
        ValueError: It is no semantic version.
    """
    if _SEMVER.fullmatch(_string(text)) is None:
        raise ValueError(f"{text!r} is no semantic version")
    return {_VERSION: text}


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no such overload")
    return value


def _amount(value: Any) -> Fraction:
    if not isinstance(value, Mapping) or list(value) != [_QUANTITY]:
        raise TypeError("no such overload")
    return Fraction(value[_QUANTITY])


def _order(text: str) -> tuple[Any, ...]:
    """What versions are compared by: a release comes after its candidates, numbers before words."""
    match = _SEMVER.fullmatch(text)
    assert match is not None
    major, minor, patch, candidate = match.groups()
    words = tuple(
        (0, int(word), "") if word.isdigit() else (1, 0, word)
        for word in (candidate or "").split(".")
        if word
    )
    return int(major), int(minor), int(patch), candidate is None, words


def _compared(one: Any, other: Any) -> int:
    """-1, 0 or 1, for two quantities or two versions."""
    if isinstance(one, Mapping) and list(one) == [_VERSION]:
        if not isinstance(other, Mapping) or list(other) != [_VERSION]:
            raise TypeError("no such overload")
        left, right = _order(one[_VERSION]), _order(other[_VERSION])
        return (left > right) - (left < right)
    first, second = _amount(one), _amount(other)
    return (first > second) - (first < second)


def _is(make: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            make(_string(text))
        except ValueError:
            return False
        return True

    return test


def _sum(one: Any, other: Any, sign: int) -> dict[str, str]:
    """A quantity and a quantity, or a whole number."""
    is_number = isinstance(other, int) and not isinstance(other, bool)
    amount = Fraction(other) if is_number else _amount(other)
    return {_QUANTITY: str(_amount(one) + sign * amount)}


def _integer(value: Any) -> int:
    amount = _amount(value)
    if amount.denominator != 1 or not -(2**63) <= amount < 2**63:
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _is_integer(value: Any) -> bool:
    amount = _amount(value)
    return amount.denominator == 1 and -(2**63) <= amount < 2**63


def _number(position: int) -> Callable[[Any], int]:
    def number(value: Any) -> int:
        if not isinstance(value, Mapping) or list(value) != [_VERSION]:
            raise TypeError("no such overload")
        return int(_order(value[_VERSION])[position])

    return number


def _optional_key(container: Any, key: Any) -> OptionalValue:
    if not isinstance(container, Mapping):
        raise TypeError("no such overload")
    return OptionalValue.of(container[key]) if key in container else OptionalValue.none()


def _domain(container: Any, key: Any) -> Any:
    """A domain that a device has no facts of has an empty map, in the scheduler too."""
    return container.get(_string(key), {})


def _in_ascii(change: Callable[[str], str]) -> Callable[[Any], str]:
    return lambda text: "".join(change(one) if one.isascii() else one for one in _string(text))


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {
        OPTIONAL_KEY: _optional_key,
        DOMAIN: _domain,
        "quantity": quantity,
        "isQuantity": _is(quantity),
        "semver": version,
        "isSemver": _is(version),
        "compareTo": _compared,
        "isGreaterThan": lambda one, other: _compared(one, other) > 0,
        "isLessThan": lambda one, other: _compared(one, other) < 0,
        "add": lambda one, other: _sum(one, other, 1),
        "sub": lambda one, other: _sum(one, other, -1),
        "asInteger": _integer,
        "isInteger": _is_integer,
        "asApproximateFloat": lambda one: float(_amount(one)),
        "major": _number(0),
        "minor": _number(1),
        "patch": _number(2),
        "lowerAscii": _in_ascii(str.lower),
        "upperAscii": _in_ascii(str.upper),
    }
)
"""By name; as methods they get their object first."""
