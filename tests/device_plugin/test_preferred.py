"""Which chips a container had best get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.agent.device_plugin.preferred import Location, preferred


def server(count: int, *, ring: int, card: int = 1, numa: int | None = None) -> dict[str, Location]:
    """A board: so many chips in each ring, on each card and near each NUMA node."""
    return {
        f"n-{number}": Location(
            number=number,
            domain=f"ring-{number // ring}",
            card=number // card,
            numa_node=None if numa is None else number // numa,
        )
        for number in range(count)
    }


def shared(count: int, *, shares: int, numa: int | None = None) -> dict[str, Location]:
    """A board whose chips have so many shares each; share 1 of chip 2 is `n-201`."""
    chips = server(count, ring=count, numa=numa)
    return {
        f"n-{100 * place.number + share}": replace(place, part=share)
        for place in chips.values()
        for share in range(shares)
    }


def ids(*numbers: int) -> list[str]:
    """Their ids."""
    return [f"n-{number}" for number in numbers]


@pytest.mark.parametrize(
    ("places", "free", "size", "chosen"),
    [
        (server(8, ring=4), range(8), 2, (0, 1)),
        (server(8, ring=4), (0, 4, 5, 6, 7), 1, (0,)),
        (server(8, ring=4), (1, 2, 4, 5, 6, 7), 2, (1, 2)),
        (server(8, ring=4), (0, 1, 2, 4, 5, 6, 7), 4, (4, 5, 6, 7)),
        (server(8, ring=4), (0, 1, 2, 3, 4, 5), 3, (0, 1, 2)),
        (server(8, ring=4), (0, 1, 4, 5), 3, (0, 1, 4)),
        (server(8, ring=8, numa=2), (0, 2, 3, 5), 2, (2, 3)),
        (server(8, ring=4, numa=1), (0, 1, 4), 2, (0, 1)),
        (server(8, ring=8, card=2), (0, 2, 3, 5), 2, (2, 3)),
        (server(8, ring=8, card=2), (0, 2, 3, 5), 3, (0, 2, 3)),
        (server(8, ring=8, card=2), (0, 1, 2, 3, 5), 1, (5,)),
        (server(8, ring=4), range(8), 8, range(8)),
    ],
    ids=[
        "the lowest of equals",
        "the last of a broken ring",
        "what leaves no ring broken",
        "one ring",
        "one ring is worth breaking it",
        "two rings if it must be",
        "one NUMA node",
        "one ring rather than one NUMA node",
        "a whole card",
        "a whole card and one more",
        "the last of a broken card",
        "all",
    ],
)
def test_best_choices(
    places: Mapping[str, Location], free: Collection[int], size: int, chosen: Collection[int]
) -> None:
    """Each rule, where those above it do not decide."""
    assert preferred(places, ids(*free), [], size) == tuple(ids(*chosen))


@pytest.mark.parametrize(
    ("free", "size", "chosen"),
    [
        ((100, 101, 102, 200, 201), 1, (200,)),
        ((100, 101, 102, 200, 201), 2, (200, 201)),
        ((100, 101, 102, 200, 201), 3, (100, 101, 102)),
        ((101, 201), 2, (101, 201)),
        ((100, 101, 102, 200, 201, 301), 4, (301, 100, 101, 102)),
        ((100, 101, 102, 200, 202, 300, 301), 4, (200, 202, 300, 301)),
        ((100, 101, 200, 201, 301), 4, (100, 101, 200, 201)),
    ],
    ids=[
        "a chip in use rather than a free one",
        "the rest of one",
        "one chip rather than two",
        "two chips if it must be",
        "all of the free chip, and all of another",
        "two broken chips to the end, so that the free one stays free",
        "two chips rather than three",
    ],
)
def test_best_shares(free: Collection[int], size: int, chosen: Collection[int]) -> None:
    """Of four chips with three shares each."""
    assert preferred(shared(4, shares=3), ids(*free), [], size) == tuple(ids(*chosen))


def test_many_shares_take_no_longer_than_a_call_may() -> None:
    """Sixteen chips near eight NUMA nodes, a hundred shares each."""
    places = shared(16, shares=100, numa=2)
    assert preferred(places, list(places), [], 2) == ("n-0", "n-1")


@pytest.mark.parametrize(
    ("free", "needed", "size"), [([0], [], 2), ([0, 1], [0, 1], 1), ([0, 1], [9], 1)]
)
def test_no_choice(free: list[int], needed: list[int], size: int) -> None:
    """Too few, more that are needed than wanted, or one that is not known."""
    assert preferred(server(2, ring=2), ids(*free), ids(*needed), size) == ()


def test_a_board_near_many_numa_nodes() -> None:
    """A3 with two dies on each of eight nodes: half of it is half of the nodes."""
    places = server(16, ring=16, card=2, numa=2)
    assert preferred(places, ids(*range(1, 16)), [], 8) == tuple(ids(*range(2, 10)))


@st.composite
def questions(draw: st.DrawFn) -> tuple[dict[str, Location], list[str], list[str], int]:
    """A board, what of it is free, what of that is needed, and how many are wanted."""
    count = draw(st.integers(1, 8))
    per_card = draw(st.sampled_from([1, 2]))
    shares = draw(st.sampled_from([1, 3]))
    rings = draw(st.lists(st.sampled_from("abc"), min_size=count, max_size=count))
    nodes = draw(st.lists(st.sampled_from([None, 0, 1]), min_size=count, max_size=count))
    places = {
        f"n-{number}": Location(
            number=number // shares,
            domain=rings[number // shares // per_card],
            card=number // per_card if shares == 1 else number // shares,
            numa_node=nodes[number // shares],
            part=None if shares == 1 else number % shares,
        )
        for number in range(count)
    }
    free = draw(st.lists(st.sampled_from(sorted(places)), unique=True, min_size=1))
    needed = draw(st.lists(st.sampled_from(free), unique=True, max_size=2))
    return places, free, needed, draw(st.integers(len(needed), len(free)))


def cost(
    places: Mapping[str, Location], free: Collection[str], chosen: Collection[str]
) -> tuple[object, ...]:
    """How bad a choice is, straight from the words of the rules."""
    taken = [places[id_] for id_ in chosen]
    left = [places[id_] for id_ in free if id_ not in chosen]
    return (
        len({card(place) for place in taken}),
        len({place.domain for place in taken}),
        len({place.numa_node for place in taken}),
        broken(map(card, places.values()), map(card, left)),
        broken((place.domain for place in places.values()), (place.domain for place in left)),
        sorted(map(partial(rank, free_parts(places, free)), taken)),
    )


def free_parts(places: Mapping[str, Location], free: Collection[str]) -> Mapping[int, int]:
    """How many parts of each chip are free."""
    return Counter(places[id_].number for id_ in free if places[id_].part is not None)


def rank(free: Mapping[int, int], place: Location) -> tuple[int, ...]:
    """The lower, the rather it is chosen of equally good ones."""
    return free.get(place.number, 0), place.number, place.part or 0


def card(place: Location) -> Hashable:
    """A card in its domain."""
    return place.domain, place.card


def broken(every: Iterable[Hashable], left: Iterable[Hashable]) -> int:
    """How many groups have a part of their members left."""
    whole, rest = Counter(every), Counter(left)
    return sum(0 < rest[group] < whole[group] for group in whole)


@given(questions())
def test_no_choice_is_better(
    question: tuple[dict[str, Location], list[str], list[str], int],
) -> None:
    """All choices are compared."""
    places, free, needed, size = question
    if size == 0:
        return
    best = min(
        (choice for choice in combinations(free, size) if set(needed) <= set(choice)),
        key=lambda choice: cost(places, free, choice),
    )
    found = preferred(places, free, needed, size)
    assert sorted(found) == sorted(best)
