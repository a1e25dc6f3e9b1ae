"""Hostile answers of an API server, or of what stands in its place."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from dev.abuse.node import HarmDone, Node

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
_CLAIM = "taken-over"
_SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
}


@asynccontextmanager
async def wrong_types(node: Node, mebibytes: int) -> AsyncIterator[None]:
    """One claim has so many MiB of results that are numbers."""
    claim = node.rig.claim(_CLAIM, "npu-1")
    metadata = {"name": _CLAIM, "namespace": "default", "uid": claim.uid}
    results = b"1," * (mebibytes << 19) + b"1"
    body = b'{"metadata":%b,"status":{"allocation":{"devices":{"results":[%b]}}}}' % (
        json.dumps(metadata).encode(),
        results,
    )

    async def answer() -> AsyncGenerator[bytes, None]:
        yield _HEAD + body

    def lie(asked: bytes) -> AsyncGenerator[bytes, None] | None:
        return answer() if f"/{_CLAIM} ".encode() in asked.split(b"\r\n")[0] else None

    async with node.front.lying(lie), trio.open_nursery() as nursery:
        nursery.start_soon(node.prepare_and_unprepare, claim)
        yield
        nursery.cancel_scope.cancel()


def endless_watch(node: Node, mebibytes: int) -> AbstractAsyncContextManager[None]:
    """The watch of slices sends so many MiB of new ones, as fast as they are read."""

    async def answer() -> AsyncGenerator[bytes, None]:
        yield _HEAD
        for number in range(mebibytes << 10):
            metadata = {"name": f"s-{number:07}", "resourceVersion": "1", "uid": "a" * 800}
            event = {"type": "ADDED", "object": _SLICE | {"metadata": metadata}}
            yield json.dumps(event).encode() + b"\n"
        await trio.sleep_forever()

    return node.front.lying(lambda asked: answer() if _is_watch(asked) else None)


@asynccontextmanager
async def slow_watch(node: Node, seconds: int) -> AsyncIterator[None]:
    """The watch of slices sends one event, a byte each second."""
    watches = 0

    async def answer() -> AsyncGenerator[bytes, None]:
        nonlocal watches
        watches += 1
        yield _HEAD
        while True:
            yield b" "
            await trio.sleep(1)

    async with node.front.lying(lambda asked: answer() if _is_watch(asked) else None):
        yield
    if watches < 2:
        raise HarmDone(f"the watch is not given up within {seconds} s")


def _is_watch(asked: bytes) -> bool:
    return b"/resourceslices?" in asked and b"watch=true" in asked
