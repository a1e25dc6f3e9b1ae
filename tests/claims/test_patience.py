"""Faults that may pass are tried again, within the kubelet's call."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import islice

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.claims.patience import Patience, pauses
from trio_npu_dra.errors import (
    ClaimNotAllocated,
    DeviceHeld,
    Forbidden,
    NpuDraError,
    StorageError,
    Unavailable,
    UnknownDevice,
)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Unavailable("503"), 40),
        (StorageError("disk full"), 40),
        (DeviceHeld("npu-2"), 5),
        (ClaimNotAllocated("replaced"), 0),
        (UnknownDevice("npu-9"), 0),
        (Forbidden("403"), 0),
    ],
)
def test_patience_depends_on_who_can_end_the_fault(error: NpuDraError, seconds: float) -> None:
    """Time, another pod's end, or only people."""
    assert Patience().of(error) == seconds


def test_pauses_grow_to_a_cap_and_differ() -> None:
    """A node that waits long asks seldom; two nodes do not march in step."""
    one, other = (list(islice(pauses(), 12)) for _ in range(2))

    assert 0.025 <= one[0] <= 0.05
    assert all(1.0 <= pause <= 2.0 for pause in one[-5:])
    assert one != other


class Failing:
    """An attempt that fails for each claim as often as it is told to."""

    def __init__(self, errors: dict[str, list[NpuDraError]]) -> None:
        self._errors = errors
        self.tried: list[set[str]] = []

    async def __call__(self, uids: AbstractSet[str]) -> Mapping[str, NpuDraError]:
        """Try once."""
        await trio.lowlevel.checkpoint()
        self.tried.append(set(uids))
        return {uid: self._errors[uid].pop(0) for uid in uids if self._errors.get(uid)}


async def test_only_what_may_pass_is_tried_again(autojump_clock: MockClock) -> None:
    """A success and a final error are not."""
    del autojump_clock
    final = Forbidden("403")
    attempt = Failing({"passes": [StorageError("x"), StorageError("y")], "final": [final]})

    left = await Patience().insist(attempt, {"good", "passes", "final"}, since=trio.current_time())

    assert left == {"final": final}
    assert attempt.tried == [{"good", "passes", "final"}, {"passes"}, {"passes"}]


async def test_the_api_server_is_given_the_time_it_asks_for(autojump_clock: MockClock) -> None:
    """If the call has it; a longer one is not begun."""
    del autojump_clock
    since = trio.current_time()
    short, long = Unavailable("429", retry_after=12.0), Unavailable("429", retry_after=120.0)

    assert await Patience().insist(Failing({"a": [short]}), {"a"}, since=since) == {}
    assert trio.current_time() - since == pytest.approx(12.0)

    assert await Patience().insist(Failing({"a": [long]}), {"a"}, since=since) == {"a": long}
    assert trio.current_time() - since == pytest.approx(12.0)


@pytest.mark.parametrize("error", [StorageError("x"), Unavailable("503")])
async def test_a_fault_without_a_wish_is_tried_again_at_once(
    autojump_clock: MockClock, error: NpuDraError
) -> None:
    """Within a twentieth of a second."""
    del autojump_clock
    since = trio.current_time()
    assert await Patience().insist(Failing({"a": [error]}), {"a"}, since=since) == {}
    assert trio.current_time() - since <= 0.05


async def test_it_ends_before_the_kubelet_ends_the_call(autojump_clock: MockClock) -> None:
    """With the last error."""
    del autojump_clock
    since = trio.current_time()
    errors: list[NpuDraError] = [StorageError(str(number)) for number in range(1000)]
    attempt = Failing({"a": list(errors)})

    left = await Patience().insist(attempt, {"a"}, since=since)

    assert left == {"a": errors[len(attempt.tried) - 1]}
    assert 35 < trio.current_time() - since < 40
