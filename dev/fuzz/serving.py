"""A gRPC server that lives on from example to example, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from trio_npu_dra.kit.grpc import Channel, Route, open_bridge


@asynccontextmanager
async def served(path: Path, routes: Sequence[Route]) -> AsyncIterator[Channel]:
    """Serve *routes* on a unix socket, until left."""
    async with (
        open_bridge() as bridge,
        bridge.dial(path) as channel,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(bridge.serve_unix, path, routes))
        yield channel
        nursery.cancel_scope.cancel()
