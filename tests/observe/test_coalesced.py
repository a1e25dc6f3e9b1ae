"""Values that are made once for all clients."""
# ruff: noqa: ARG001 - the fixture autojump_clock is requested, not used

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trio_npu_dra.kit.http import Coalesced


class Maker:
    """Makes 1, 2, 3, ... and takes a tenth of a second for each."""

    def __init__(self) -> None:
        self.made = 0

    async def __call__(self) -> int:
        """Make the next."""
        await trio.sleep(0.1)
        self.made += 1
        return self.made


@pytest.fixture
def shared() -> Coalesced[int]:
    """Numbers that are good for a second."""
    return Coalesced(Maker(), seconds=1)


async def test_all_clients_within_a_second_get_one_value(
    shared: Coalesced[int], autojump_clock: MockClock
) -> None:
    """That includes clients that come while it is made, and those that come soon after."""
    got: list[int] = []

    async def ask() -> None:
        got.append(await shared.get())

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    await trio.sleep(0.9)
    await ask()
    assert got == [1] * 21

    await trio.sleep(0.2)
    assert await shared.get() == 2


async def test_nothing_is_made_without_a_request(
    shared: Coalesced[int], autojump_clock: MockClock
) -> None:
    """A value is made for the next client, no sooner."""
    assert await shared.get() == 1
    await trio.sleep(100)
    assert await shared.get() == 2


async def test_a_client_that_leaves_spoils_no_value(
    shared: Coalesced[int], autojump_clock: MockClock
) -> None:
    """The next client has it made anew."""
    with trio.move_on_after(0.05):
        await shared.get()
    assert await shared.get() == 1
