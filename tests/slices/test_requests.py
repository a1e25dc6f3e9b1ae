"""How much the publisher asks the API server, on a virtual clock: 5,000 nodes ask the same one."""
# ruff: noqa: ARG001 - the fixture autojump_clock is asked for, not used

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from tests.slices.publishing import devices, publishing
from tests.slices.reach import Reach
from trio_npu_dra.kube.bodies import OBJECT_LIMIT
from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import ResourceSlice
from trio_npu_dra.standins.api_state import ApiState

LAGS = (0.0, 0.5)
"""Seconds; the watch can show a write before its answer comes, or long after it."""


async def asked(reach: Reach, *, seconds: float = 60) -> dict[str, int]:
    """How many requests come within a time, by verb."""
    await trio.sleep(seconds)
    counted, reach.asked = dict(reach.asked), Counter()
    return counted


@pytest.mark.parametrize("lag", LAGS)
async def test_a_start_lists_the_slices_once(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """The watch begins with the list on which writes are planned."""
    reach.lag = lag
    async with publishing(KubeClient(reach), reach.state, devices(70)):
        assert await asked(reach) == {"get": 1, "list": 1, "watch": 1, "create": 2}
    async with publishing(KubeClient(reach), reach.state, devices(70)):
        assert await asked(reach) == {"get": 1, "list": 1, "watch": 1}


@pytest.mark.parametrize("lag", LAGS)
async def test_a_change_costs_a_list_and_its_writes(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """What the watch shows of them, and when, costs nothing."""
    reach.lag = lag
    async with publishing(KubeClient(reach), reach.state, devices(70)) as subject:
        await asked(reach)
        subject.publish(devices(70, taint="major"))
        assert await asked(reach) == {"list": 1, "update": 1}
        subject.publish(devices(2))
        assert await asked(reach) == {"list": 1, "delete": 1, "update": 1}


@pytest.mark.parametrize("lag", LAGS)
async def test_a_repair_costs_a_list_and_its_write(
    lag: float, reach: Reach, autojump_clock: MockClock
) -> None:
    """As a change does."""
    reach.lag = lag
    async with publishing(KubeClient(reach), reach.state, devices(2)) as subject:
        await asked(reach)
        subject.edit()
        assert await asked(reach) == {"list": 1, "update": 1}


class Editor(Reach):
    """Somebody edits the first slice before the driver has the answer that it was made."""

    async def ask(
        self,
        asked: str,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        limit: int = OBJECT_LIMIT,
    ) -> bytes:
        """One request."""
        answer = await super().ask(asked, method, path, body, limit=limit)
        if method == "POST" and self.asked["create"] == 1:
            (stored,) = self.state.all(ResourceSlice)
            spec = stored.spec.model_copy(update={"devices": (stored.spec.devices or ())[1:]})
            self.state.put(stored.model_copy(update={"spec": spec}))
            await trio.sleep(1)  # meanwhile the watch shows both
        return answer


async def test_an_edit_that_hides_our_own_write_is_repaired(
    state: ApiState, autojump_clock: MockClock
) -> None:
    """The watch may never show what was written: it is not waited for without end."""
    reach = Editor(state)
    async with publishing(KubeClient(reach), state, devices(2)) as subject:
        await asked(reach, seconds=4)
        assert subject.devices == devices(2)


async def test_a_change_does_not_wait_for_what_the_watch_shows(
    reach: Reach, autojump_clock: MockClock
) -> None:
    """A watch that shows nothing delays no fact."""
    reach.lag = 1000.0
    async with publishing(KubeClient(reach), reach.state, devices(1)) as subject:
        await subject.until_settled()
        for count in range(2, 8):
            subject.publish(devices(count))
            await trio.sleep(0.3)
            assert subject.devices == devices(count)
