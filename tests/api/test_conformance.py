"""The conformance scenarios on the stand-in, from both event loops."""

from functools import partial

import pytest
import trio

from tests.api.conformance import (
    AS_ADMINISTRATOR,
    AS_DRIVER,
)
from tests.api.feature_scenarios import AS_DRIVER_WITH_FEATURES
from tests.api.loops import LOOPS, run_on
from tests.api.scenario import Scenario, driver_rules
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.api_state import ApiState

SCENARIOS = (*AS_DRIVER, *AS_DRIVER_WITH_FEATURES, *AS_ADMINISTRATOR)


def give_rights(state: ApiState, scenario: Scenario) -> None:
    """Give the client the rights of the manifests, or all rights."""
    if scenario not in AS_ADMINISTRATOR:
        state.rights = {
            plural: frozenset(rule["verbs"])
            for rule in driver_rules()
            for plural in rule["resources"]
        }


async def send_bookmarks(state: ApiState) -> None:
    """Send bookmarks now and then, so that each scenario meets some."""
    while True:
        await trio.sleep(0.05)
        state.bookmark()


async def ask(scenario: Scenario, credentials: Credentials) -> None:
    """Play a scenario with a client of its own."""
    async with open_client(credentials) as client:
        await scenario(client)


@pytest.mark.parametrize("scenario", AS_DRIVER, ids=lambda scenario: scenario.__name__)
async def test_standin_conforms_as_an_older_version(
    scenario: Scenario, credentials: Credentials, state: ApiState
) -> None:
    """What needs no newer feature holds for Kubernetes 1.34, whose words differ a little."""
    state.kubernetes = Kubernetes(minor=34, taints=False, counters=False, shares=False)
    give_rights(state, scenario)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_bookmarks, state)
        await ask(scenario, credentials)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_standin_conforms(
    scenario: Scenario,
    loop: str,
    credentials: Credentials,
    state: ApiState,
    nursery: trio.Nursery,
) -> None:
    """Each conformance scenario holds for the stand-in."""
    give_rights(state, scenario)
    nursery.start_soon(send_bookmarks, state)
    await run_on(loop, partial(ask, scenario, credentials))
