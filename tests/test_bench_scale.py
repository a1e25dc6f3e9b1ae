"""The parts of `just bench scale` that need no control plane."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from dev.benchmarks import scale
from dev.benchmarks.cost import Cost
from dev.benchmarks.fleet import Fleet
from dev.benchmarks.relay import Relay
from dev.rig.waiting import HANG_SECONDS
from trio_npu_dra.kit.api.credentials import Credentials
from trio_npu_dra.kit.api.objects import Device, Node, ObjectMeta, ResourceSlice
from trio_npu_dra.kit.pool import PoolContent
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState

COST = Cost(
    requests=12,
    refused=0,
    connections=4,
    received=2048,
    sent=1024,
    api_ms=10,
    etcd_ms=1,
    seconds=3,
)
LOOPBACK = "127.0.0.1"
NODES = ("node-1", "node-2", "node-3")


async def test_the_relay_counts_both_ways() -> None:
    """Bytes and connections; the end of one side is the end of the other."""

    async def answer(stream: trio.SocketStream) -> None:
        assert await stream.receive_some() == b"ask"
        await stream.send_all(b"answer")

    async with trio.open_nursery() as nursery:
        serve = partial(trio.serve_tcp, answer, 0, host=LOOPBACK)
        (listener,) = await nursery.start(serve)
        relay = Relay(LOOPBACK, listener.socket.getsockname()[1])
        port = await nursery.start(relay.serve)
        with trio.fail_after(HANG_SECONDS):
            async with await trio.open_tcp_stream(LOOPBACK, port) as client:
                await client.send_all(b"ask")
                assert b"".join([chunk async for chunk in client]) == b"answer"
        nursery.cancel_scope.cancel()
    assert (relay.connections, relay.bytes) == (1, {"sent": 3, "received": 6})


async def test_the_relay_hangs_up_while_the_server_is_away() -> None:
    """Clients then see what they would see without it, and try again."""
    with trio.socket.socket() as unused:
        await unused.bind((LOOPBACK, 0))
        relay = Relay(LOOPBACK, unused.getsockname()[1])
        async with trio.open_nursery() as nursery:
            port = await nursery.start(relay.serve)
            with trio.fail_after(HANG_SECONDS):
                async with await trio.open_tcp_stream(LOOPBACK, port) as client:
                    assert await client.receive_some() == b""
            nursery.cancel_scope.cancel()
    assert relay.connections == 0


async def test_each_node_of_a_fleet_publishes(folder: Path) -> None:
    """All start, and a change reaches the API server from each."""
    state = ApiState()
    for name in NODES:
        state.add(Node(metadata=ObjectMeta(name=name)))
    credentials = Credentials(
        source="test", base_url="http://localhost", unix_socket=folder / "api.sock"
    )
    fleet = Fleet(
        dict.fromkeys(NODES, credentials),
        driver_name="npu.example.com",
        pool=PoolContent(devices=(Device(name="npu-0"), Device(name="npu-1"))),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_api, state, folder / "api.sock")
        with trio.fail_after(HANG_SECONDS):
            await fleet.start(nursery, at_once=2)
            assert {each.spec.node_name for each in state.all(ResourceSlice)} == set(NODES)
            await fleet.taint()
        nursery.cancel_scope.cancel()
    for each in state.all(ResourceSlice):
        first, second = each.spec.devices or ()
        assert first.taints
        assert not second.taints


def test_a_cost_is_scaled_to_more_nodes_in_the_same_time() -> None:
    """What a node costs grows with their number; how long one needs does not."""
    scaled = COST.scaled(2.5)
    assert (scaled.requests, scaled.connections, scaled.received) == (30, 10, 5120)
    assert (scaled.api_ms, scaled.seconds) == (25, 3)


def test_a_large_cluster_is_extrapolated_and_said_to_be() -> None:
    """The report has what was measured a node, and 5,000 times as much."""
    shown = scale.report(2, dict.fromkeys((scale.START, scale.QUIET), COST))
    measured, extrapolated, quiet = shown.split("\n\n")
    assert "start      6.00     0.00         2.00          1.00      0.50" in measured
    assert "not measured" in extrapolated
    assert "start     30000" in extrapolated
    assert "10000 requests" in quiet
