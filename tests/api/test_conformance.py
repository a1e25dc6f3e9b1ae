"""The conformance scenarios on the stand-in."""

import pytest
import trio

from tests.api.conformance import AS_ADMINISTRATOR, AS_DRIVER
from tests.api.feature_scenarios import AS_DRIVER_WITH_FEATURES
from tests.api.scenario import Scenario, driver_rules
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.lab.standins.api_rules import Kubernetes
from trio_npu_dra.lab.standins.api_state import ApiState

TODAY = ApiState().kubernetes
OLDER = Kubernetes(minor=34, taints=False, counters=False, shares=False)
SCENARIOS = [
    *((scenario, TODAY) for scenario in (*AS_DRIVER, *AS_DRIVER_WITH_FEATURES, *AS_ADMINISTRATOR)),
    *((scenario, OLDER) for scenario in AS_DRIVER),
]


async def send_bookmarks(state: ApiState) -> None:
    """Send bookmarks now and then, so that each scenario meets some."""
    while True:
        await trio.sleep(0.05)
        state.bookmark()


async def play(scenario: Scenario, credentials: Credentials) -> None:
    """Play a scenario with a client of its own, for at most 10 s."""
    with trio.fail_after(10):
        async with open_client(credentials) as client:
            await scenario(client)


@pytest.mark.parametrize(
    ("scenario", "kubernetes"),
    SCENARIOS,
    ids=[f"{scenario.__name__}-1.{version.minor}" for scenario, version in SCENARIOS],
)
async def test_standin_conforms(
    scenario: Scenario,
    kubernetes: Kubernetes,
    credentials: Credentials,
    state: ApiState,
    nursery: trio.Nursery,
) -> None:
    """Each scenario holds; those without newer features hold for 1.34, with its own messages."""
    state.kubernetes = kubernetes
    if scenario not in AS_ADMINISTRATOR:
        state.rights = {
            plural: frozenset(rule["verbs"])
            for rule in driver_rules()
            for plural in rule["resources"]
        }
    nursery.start_soon(send_bookmarks, state)
    await play(scenario, credentials)
