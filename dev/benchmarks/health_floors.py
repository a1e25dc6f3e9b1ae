"""The steps that no driver can avoid between a fault and a slice, one by one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.health import read_health
from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.objects import DeviceTaint, ResourceSlice
from trio_npu_dra.lab.simulator import BoardControl, Severity

_NOTICE = 0x80000000
_EVENT_SECONDS = 5.0


class Floors:
    """Does single steps, with the driver's own binding and client.

    Attributes:
        samples: Milliseconds by floor.
    """

    def __init__(self, client: KubeClient, dcmi: Dcmi, board: BoardControl) -> None:
        self.samples: dict[str, list[float]] = {}
        self._client = client
        self._dcmi = dcmi
        self._board = board
        self._slice: ResourceSlice | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._heard = trio.Event()
        dcmi.init()
        self._chip = dcmi.units(dcmi.card_list()[0])[0]
        dcmi.subscribe(lambda _: self._token.run_sync_soon(self._heard.set))

    async def measure(self) -> None:
        """Do each step once."""
        await self._timed("event of the board, in another process", self._event)
        await self._timed("read of one NPU", self._read)
        await self._timed("PUT of a slice with eight NPUs", self._put)

    async def prepare(self, node: str) -> None:
        """Make a slice to write to: for *node*, under a driver name of our own."""
        (found,), _ = await self._client.list(ResourceSlice, field_selector=f"spec.nodeName={node}")
        spec = found.spec.model_copy(update={"driver": "floor.example.com"})
        metadata = found.metadata.model_copy(
            update={"name": f"{node}-floor", "uid": None, "resource_version": None}
        )
        copy = found.model_copy(update={"metadata": metadata, "spec": spec})
        self._slice = await self._client.create(copy)

    async def _timed(self, name: str, do: Callable[[], Awaitable[None]]) -> None:
        began = time.perf_counter()
        await do()
        self.samples.setdefault(name, []).append(1000 * (time.perf_counter() - began))

    async def _event(self) -> None:
        self._heard = trio.Event()
        self._board.emit_event(0, _NOTICE, Severity.WARNING)
        with trio.fail_after(_EVENT_SECONDS):
            await self._heard.wait()

    async def _read(self) -> None:
        read_health(self._dcmi, self._chip)

    async def _put(self) -> None:
        assert self._slice is not None
        first, *others = self._slice.spec.devices or ()
        taints = None
        if not first.taints:
            taints = (DeviceTaint(key="example.com/unhealthy", effect="NoSchedule"),)
        devices = (first.model_copy(update={"taints": taints}), *others)
        spec = self._slice.spec.model_copy(update={"devices": devices})
        self._slice = await self._client.update(self._slice.model_copy(update={"spec": spec}))
