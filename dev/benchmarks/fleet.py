"""The publishers of many nodes in one process, each with connections and an identity of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import trio

from trio_npu_dra.agent.devices.features import ServerFeatures, follow_features
from trio_npu_dra.kit.api.client import open_client
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import DeviceTaint
from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.pool import PoolAccepted, PoolContent, PublisherStatus, SliceWritten, publish


class PublishingNode:
    """What a node's daemon does at the API server while no claim comes and nothing is reported.

    `accepted` counts how often the API server was found to have all of its pool.
    """

    def __init__(
        self, name: str, credentials: Credentials, *, driver_name: str, pool: PoolContent
    ) -> None:
        self.pool = Observable(pool)
        self.status = Observable(PublisherStatus())
        self.accepted = Observable(0)
        self._name = name
        self._credentials = credentials
        self._driver_name = driver_name

    async def run(self) -> None:
        """Publish until cancelled."""
        features: Observable[ServerFeatures | None] = Observable(None)
        async with open_client(self._credentials) as client, trio.open_nursery() as nursery:
            follow = partial(
                follow_features,
                client,
                node_name=self._name,
                driver_name=self._driver_name,
                features=features,
                status=self.status,
            )
            nursery.start_soon(follow)
            await features.wait_until(lambda found: found is not None)
            await publish(
                client,
                node_name=self._name,
                driver_name=self._driver_name,
                pool=self.pool,
                status=self.status,
                on_event=self._note,
            )

    def _note(self, event: SliceWritten | PoolAccepted) -> None:
        if isinstance(event, PoolAccepted):
            self.accepted.set(self.accepted.value + 1)


class Fleet:
    """Nodes by their identities at the API server, each of which publishes a pool first."""

    def __init__(
        self, identities: Mapping[str, Credentials], *, driver_name: str, pool: PoolContent
    ) -> None:
        self.nodes: Sequence[PublishingNode] = [
            PublishingNode(name, identity, driver_name=driver_name, pool=pool)
            for name, identity in identities.items()
        ]

    async def start(self, nursery: trio.Nursery, *, at_once: int) -> None:
        """Start all nodes, so many at a time, and wait until all have published and watch."""
        turns = trio.CapacityLimiter(at_once)

        async def start(node: PublishingNode) -> None:
            async with turns:
                nursery.start_soon(node.run)
                await node.status.wait_until(_is_settled)

        async with trio.open_nursery() as starting:
            for node in self.nodes:
                starting.start_soon(start, node)

    async def taint(self) -> None:
        """Taint a device of each node, and wait until the API server has all of that."""
        taint = DeviceTaint(key="example.com/benchmark", effect="NoSchedule")
        before = [node.accepted.value for node in self.nodes]
        for node in self.nodes:
            first, *others = node.pool.value.devices
            tainted = first.model_copy(update={"taints": (taint,)})
            node.pool.set(replace(node.pool.value, devices=(tainted, *others)))
        for node, accepted in zip(self.nodes, before, strict=True):
            await node.accepted.wait_for_other(accepted)

    def watch_restarts(self) -> list[int]:
        """How often each node has reopened a broken watch."""
        return [node.status.value.watch_restarts for node in self.nodes]

    async def until_watching_again(self, before: Sequence[int]) -> None:
        """Wait until all watches are open that broke since `watch_restarts` was *before*."""
        for node, restarts in zip(self.nodes, before, strict=True):
            await node.status.wait_until(partial(_has_recovered, restarts))


def _is_settled(status: PublisherStatus) -> bool:
    return status.current and status.watching


def _has_recovered(restarts: int, status: PublisherStatus) -> bool:
    return _is_settled(status) and status.watch_restarts > restarts
