"""Which chips a container had best get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

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
        ((100, 101, 200, 201, 301), 4, (100, 101, 200, 201)),
    ],
    ids=[
        "a chip in use rather than a free one",
        "the rest of one",
        "one chip rather than two",
        "two chips if it must be",
        "all of the free chip, and all of another",
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


@given(questions())
def test_a_choice_is_one_and_one_group_is_enough_where_one_has_enough(
    question: tuple[dict[str, Location], list[str], list[str], int],
) -> None:
    """Of domains; inside it of NUMA nodes, and inside that of cards."""
    places, free, needed, size = question
    found = preferred(places, free, needed, size)
    assert len(found) == len(set(found)) == size
    assert set(needed) <= set(found) <= set(free)
    if not needed and size:
        pool = [places[id_] for id_ in free]
        for level in ("domain", "numa_node", "card"):
            sizes = Counter(getattr(place, level) for place in pool)
            if max(sizes.values()) < size:
                break
            (group,) = {getattr(places[id_], level) for id_ in found}
            assert sizes[group] == min(one for one in sizes.values() if one >= size)
            pool = [place for place in pool if getattr(place, level) == group]
