"""The count of a peer's bytes does not depend on how they are cut into pieces."""

from __future__ import annotations

import itertools

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.kit.grpc.frame_budget import BudgetExceeded, FrameBudget
from trio_npu_dra.kit.grpc.limits import Limits

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = [size.to_bytes(3) + bytes((0, 0)) + (1).to_bytes(4) + b"x" * size for size in (0, 5, 300)]
SENT = PREFACE + b"".join(FRAMES)


def left(cuts: list[int], limit: int) -> bool:
    """Whether a budget of *limit* frames lasts for all of `SENT`, cut at some places."""

    async def read() -> bool:
        budget = FrameBudget(Limits(frames=limit, frames_per_second=0))
        places = [0, *sorted(cuts), len(SENT)]
        try:
            for begin, end in itertools.pairwise(places):
                assert budget.read(SENT[begin:end], 100) == end - begin
        except BudgetExceeded:
            return False
        return True

    return trio.run(read)


@given(cuts=st.lists(st.integers(0, len(SENT)), max_size=5))
def test_frames_are_counted_however_they_are_cut(cuts: list[int]) -> None:
    """Three frames always count as three."""
    assert left(cuts, 3)
    assert not left(cuts, 2)


@pytest.mark.parametrize(("frames", "counted"), [(1, 1), (2, 2), (3, 3), (4, 3)])
async def test_a_turn_ends_before_the_next_frame(frames: int, counted: int) -> None:
    """Later frames wait for the next turn."""
    budget = FrameBudget(Limits())
    size = budget.read(SENT, frames)
    assert size == len(PREFACE) + sum(len(frame) for frame in FRAMES[:counted])
    assert budget.read(SENT[size:], 3) == len(SENT) - size
