"""Makes and removes vNPUs, and sees that the Board knows of it.

To cut a chip takes the Ascend driver seconds. So these calls run apart from all others, one at a
time for each chip: neither readings of health nor calls about other chips wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.errors import ChipsUnknown, DeviceLost, NotPermitted
from trio_npu_dra.npu.dcmi.client import Dcmi
from trio_npu_dra.npu.dcmi.types import ChipRef
from trio_npu_dra.npu.dcmi.worker import DcmiWorker
from trio_npu_dra.npu.model import Board, Chip
from trio_npu_dra.npu.offers import Cutting
from trio_npu_dra.npu.partition import Readings
from trio_npu_dra.observable import Observable

_DEADLINE_SECONDS: Final = 20.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Vnpus:
    """The vNPUs of this node's chips, which are named by their host device nodes.

    Args:
        worker: Runs the calls.
        dcmi: The library, initialised by the time the Board has chips; None where there is none.
        board: The chips.
        splits: By which the Board's vNPUs are read again.
        cutting: Gets the library's words when this process has no right to cut chips.
    """

    def __init__(
        self,
        worker: DcmiWorker,
        dcmi: Dcmi | None,
        board: Observable[Board],
        *,
        splits: Readings,
        cutting: Observable[Cutting],
    ) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._board = board
        self._splits = splits
        self._cutting = cutting

    async def of(self, node: str) -> Mapping[int, str]:
        """The templates of all vNPUs of a chip, by id.

        Raises:
            ChipsUnknown: The chip is not listed now.
            DcmiError: It cannot be asked.
        """
        return await self._call(node, _templates)

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut a vNPU off a chip.

        Returns:
            Its id, which is the wanted one unless the library had another mind.

        Raises:
            ChipsUnknown: The chip is not listed now.
            DcmiError: It cannot be made. After `Busy` it may be made all the same, later.
        """
        try:
            made = await self._call(node, Dcmi.create_vdevice, template, vnpu)
        except NotPermitted as error:
            self._cutting.set(replace(self._cutting.value, refusal=str(error)))
            raise
        return made

    async def destroy(self, node: str, vnpu: int) -> None:
        """Remove a vNPU; the Board does not know yet.

        Raises:
            ChipsUnknown: The chip is not listed now.
            DcmiError: It cannot be removed; `Busy` while a container uses it.
        """
        await self._call(node, Dcmi.destroy_vdevice, vnpu)

    async def seen(self) -> None:
        """Return when the Board has all vNPUs as they are now, however long that takes."""
        await self._splits.again()

    def is_replaced(self, chip: Chip) -> bool:
        """Whether another die is in a chip's place, so that its vNPUs do not exist any more."""
        return any(
            one.is_listed and one.device_node == chip.device_node and _is_another(one, chip)
            for one in self._board.value.chips
        )

    async def _call(
        self, node: str, function: Callable[[Dcmi, ChipRef, *Ts], T], *arguments: *Ts
    ) -> T:
        chip = self._chip(node)
        assert self._dcmi is not None, "without a library there is no chip"
        return await self._worker.call(
            function,
            self._dcmi,
            chip.ref,
            *arguments,
            device=(chip.ref, "vNPUs"),
            deadline_seconds=_DEADLINE_SECONDS,
            apart=True,
        )

    def _chip(self, node: str) -> Chip:
        for chip in self._board.value.chips:
            if chip.device_node == node and chip.is_listed:
                return chip
        raise ChipsUnknown(f"the NPU {node} is not listed now: its vNPUs must wait")


def _is_another(one: Chip, other: Chip) -> bool:
    return None not in {one.uuid, other.uuid} and one.uuid != other.uuid


def _templates(dcmi: Dcmi, chip: ChipRef) -> dict[int, str]:
    """The templates of a chip's vNPUs, by id; those that go meanwhile are left out."""
    found = {}
    for vnpu in dcmi.vnpus(chip):
        try:
            found[vnpu] = dcmi.vdevice(chip, vnpu).template
        except DeviceLost:
            continue
    return found
