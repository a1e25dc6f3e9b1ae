"""What is learnt of the API server, and that learning it changes nothing there."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.slices.publishing import DRIVER, NODE, WITHOUT_FEATURES
from trio_npu_dra.kube.client import KubeClient
from trio_npu_dra.kube.objects import ResourceSlice
from trio_npu_dra.observable import Observable
from trio_npu_dra.slices.features import ServerFeatures, follow_features
from trio_npu_dra.slices.publisher import PublisherStatus
from trio_npu_dra.standins.api_rules import Kubernetes
from trio_npu_dra.standins.api_state import ApiState

Features = Observable[ServerFeatures | None]


@pytest.fixture
def status() -> Observable[PublisherStatus]:
    """What the publisher sees of the API server."""
    return Observable(PublisherStatus(watching=True))


@pytest.fixture
def features(
    client: KubeClient, nursery: trio.Nursery, status: Observable[PublisherStatus]
) -> Features:
    """What is known of the API server."""
    features: Features = Observable(None)
    nursery.start_soon(
        partial(
            follow_features,
            client,
            node_name=NODE,
            driver_name=DRIVER,
            features=features,
            status=status,
        )
    )
    return features


async def until(features: Features, *, taints: bool) -> None:
    """Wait until it is known whether taints are kept."""
    with trio.fail_after(5):
        await features.wait_until(lambda found: found == ServerFeatures(taints=taints))


@pytest.mark.parametrize("keeps_taints", [True, False])
async def test_the_question_stores_nothing(
    features: Features, state: ApiState, *, keeps_taints: bool
) -> None:
    """One dry run of a create, as the rights of the driver and its policy admit it."""
    state.kubernetes = Kubernetes() if keeps_taints else WITHOUT_FEATURES
    await until(features, taints=keeps_taints)
    assert state.all(ResourceSlice) == ()
    (request,) = state.requests
    assert (request.verb, request.query) == ("create", {"dryRun": "All"})


async def test_a_server_that_was_away_is_asked_again(
    features: Features, state: ApiState, status: Observable[PublisherStatus]
) -> None:
    """It may be a newer one, or an older."""
    await until(features, taints=True)
    state.kubernetes = WITHOUT_FEATURES
    status.set(PublisherStatus(watching=False))
    await wait_all_tasks_blocked()
    status.set(PublisherStatus(watching=True))
    await until(features, taints=False)
    assert len(state.requests) == 2


async def test_a_server_that_does_not_answer_is_asked_until_it_does(
    state: ApiState, features: Features
) -> None:
    """Nothing is known meanwhile."""
    state.fail_next(2, status=503)
    await until(features, taints=True)
    assert len(state.requests) == 3
