"""Faults that may pass are tried again, within the kubelet's call."""

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.agent.claims.patience import Attempts, Patience
from trio_npu_dra.kit.base.errors import (
    ClaimNotAllocated,
    DeviceHeld,
    DriverError,
    Forbidden,
    Invalid,
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
        (Forbidden("403", status=403), 10),
        (Invalid("422"), 0),
    ],
)
def test_patience_depends_on_who_can_end_the_fault(error: DriverError, seconds: float) -> None:
    """Time, another pod's end, or only people."""
    assert Patience().limit_for(error) == seconds


async def tries(
    errors: dict[str, list[DriverError]], *uids: str
) -> tuple[list[list[str]], dict[str, DriverError]]:
    """Try claims that fail as often as given: the claims of each try, and the last errors."""
    attempts, due = Attempts(Patience(), trio.current_time()), list(uids)
    tried: list[list[str]] = []
    remains: dict[str, DriverError] = {}
    while due:
        tried.append(due)
        failed = {uid: errors[uid].pop(0) for uid in due if errors.get(uid)}
        remains = {uid: error for uid, error in remains.items() if uid not in due} | failed
        due = await attempts.again(failed)
    return tried, remains


async def test_only_an_error_that_may_pass_is_tried_again(autojump_clock: MockClock) -> None:
    """A success and a final error are not."""
    del autojump_clock
    final = Invalid("422")
    errors: dict[str, list[DriverError]] = {
        "passes": [StorageError("x"), StorageError("y")],
        "final": [final],
    }

    tried, remains = await tries(errors, "good", "passes", "final")

    assert remains == {"final": final}
    assert tried == [["good", "passes", "final"], ["passes"], ["passes"]]


async def test_the_api_server_is_given_the_time_it_asks_for(autojump_clock: MockClock) -> None:
    """If the call has it; a longer one is not begun."""
    del autojump_clock
    since = trio.current_time()
    short, long = Unavailable("429", retry_after=12.0), Unavailable("429", retry_after=120.0)

    assert (await tries({"a": [short]}, "a"))[1] == {}
    waited = trio.current_time() - since
    assert 12 <= waited <= 18

    assert (await tries({"a": [long]}, "a"))[1] == {"a": long}
    assert trio.current_time() - since == waited


async def test_it_ends_with_the_last_error_when_its_time_is_over(
    autojump_clock: MockClock,
) -> None:
    """Before the kubelet ends the call."""
    del autojump_clock
    since, error = trio.current_time(), StorageError("x")

    tried, remains = await tries({"a": [error] * 1000}, "a")

    assert remains == {"a": error}
    assert len(tried) > 3
    assert 35 < trio.current_time() - since < 40
