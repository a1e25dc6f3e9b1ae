"""The order of ranks: pods of a node, and nodes of a super pod, follow each other (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import TypeVar

from trio_npu_dra.tools.ranktable.members import Member

T = TypeVar("T", bound=Hashable)


def is_together(members: Sequence[Member]) -> bool:
    """Whether the pods of each node, and the nodes of each super pod, follow each other."""
    nodes = interleaved(member.node for member in members)
    return not nodes and not interleaved(member.super_pod for member in members)


def together(members: Sequence[Member]) -> tuple[Member, ...]:
    """The members with the pods of a node, and the nodes of a super pod, following each other.

    Nothing else changes: a super pod and a node come where their first pod was.
    """
    pods = _firsts(member.super_pod for member in members)
    nodes = _firsts(member.node for member in members)
    return tuple(sorted(members, key=lambda one: (pods[one.super_pod], nodes[one.node])))


def interleaved(keys: Iterable[T]) -> list[T]:
    """The keys that do not all follow each other."""
    return repeated(key for key, _ in groupby(keys))


def repeated(keys: Iterable[T]) -> list[T]:
    """The keys that are there more than once."""
    return [key for key, count in Counter(keys).items() if count > 1]


def _firsts(keys: Iterable[T]) -> dict[T, int]:
    """Where each key comes first."""
    places: dict[T, int] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, place)
    return places
