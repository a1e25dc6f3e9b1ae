"""The daemon's end of `npu-dra health`: HTTP over a unix socket to which only root may connect."""

from __future__ import annotations

from functools import partial

import trio

from trio_npu_dra.kit.http import Handler, serve_http
from trio_npu_dra.kit.kubelet.endpoints import Endpoints


async def serve_control(
    pages: Handler,
    endpoints: Endpoints,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer on the control socket until cancelled; started when clients can connect.

    Raises:
        ConfigError: The path cannot be a socket's, or its folder does not exist.
        StorageError: The file system refuses.
    """
    serve = partial(serve_http, pages, socket=endpoints.control)
    async with trio.open_nursery() as nursery:
        async with endpoints.starting():
            bound = await nursery.start(serve)
        task_status.started(bound)
