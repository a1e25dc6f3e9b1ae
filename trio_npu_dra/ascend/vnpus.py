"""Makes and removes vNPUs, which takes the Ascend driver seconds: no other call waits for these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeVar, TypeVarTuple

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import (
    DcmiError,
    IdUnknown,
    NotPermitted,
    NotSupported,
    TemplateRefused,
)
from trio_npu_dra.ascend.dcmi.types import ChipRef
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.offers import PartitionMode, template_key
from trio_npu_dra.kit.base.errors import DevicesUnknown
from trio_npu_dra.kit.base.observable import Observable

log = logging.getLogger(__name__)

_DEADLINE_SECONDS: Final = 20.0

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Vnpus:
    """The vNPUs of this node's chips; chips are named by their host device nodes.

    *partitioning* gets the library's reason when it refuses to cut a chip, or to cut by a template.
    """

    def __init__(
        self,
        worker: DcmiWorker,
        dcmi: Dcmi,
        board: Observable[Board],
        *,
        division: DivisionPoll,
        partitioning: Observable[PartitionMode],
    ) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._board = board
        self._division = division
        self._partitioning = partitioning
        self._refused_last: set[str] = set()  # as in `PartitionMode.refusals`, also a first one

    async def of(self, node: str) -> Mapping[int, str]:
        """The templates of all vNPUs of a chip, by id.

        Raises:
            DevicesUnknown: The chip is not listed now.
            DcmiError: It cannot be asked.
        """
        return await self._call(node, _templates)

    def known(self, node: str) -> Mapping[int, str]:
        """The templates of vNPUs on the Board, by id."""
        return {
            vdevice.id: vdevice.template
            for chip in self._board.value.chips
            if chip.device_node == node
            for vdevice in chip.vdevices
        }

    async def processes(self, node: str) -> tuple[int, ...]:
        """The ids of the processes that use a chip.

        Raises:
            DevicesUnknown: The chip is not listed now.
            DcmiError: They cannot be read.
        """
        chip = self._chip(node)
        return await self._worker.call(self._dcmi.processes, chip.ref, device=chip.ref)

    async def create(self, node: str, template: str, vnpu: int) -> int:
        """Cut a vNPU off a chip.

        Returns:
            Its id: normally the requested one, but the library may choose another.

        Raises:
            DevicesUnknown: The chip is not listed now.
            DcmiError: It cannot be made. After `Busy` it may be made all the same, later.
        """
        chip = self._chip(node)
        try:
            made = await self._call(node, Dcmi.create_vdevice, template, vnpu)
        except DcmiError as error:
            if isinstance(error, NotPermitted | NotSupported):
                self._note_refusal(chip, chip.key, str(error))
            elif isinstance(error, TemplateRefused) and await self._is_untouched(node):
                self._note_refusal(chip, self._key(chip, template), str(error))
            raise
        for key in (chip.key, self._key(chip, template)):
            self._note_refusal(chip, key, "")
        return made

    async def _is_untouched(self, node: str) -> bool:
        """Whether a chip certainly has all its room."""
        try:
            return not await self.of(node) and not await self.processes(node)
        except (DevicesUnknown, DcmiError):
            return False

    def _key(self, chip: Chip, template: str) -> str:
        return template_key(self._board.value, chip, template)

    def _note_refusal(self, chip: Chip, key: str, refusal: str) -> None:
        """Offer no partitions that the library refuses to cut: of a chip, or by a template.

        A chip has them again once it is cut, a template with another version of the Ascend driver
        or a new start. One refusal is not enough: without partitions on offer no claim would try
        again.
        """
        is_first = bool(refusal) and key not in self._refused_last
        (self._refused_last.add if refusal else self._refused_last.discard)(key)
        known = self._partitioning.value.refusals
        if is_first or refusal == known.get(key, ""):
            return
        if refusal:
            log.warning(
                "partitions are no longer cut for claims: the Ascend driver refuses",
                extra={"npu": chip.name, "problem": refusal},
            )
        else:
            log.info("partitions are cut for claims again", extra={"npu": chip.name})
        others = {one: why for one, why in known.items() if one != key}
        refusals = others | ({key: refusal} if refusal else {})
        self._partitioning.set(replace(self._partitioning.value, refusals=refusals))

    async def destroy(self, node: str, vnpu: int) -> None:
        """Remove a vNPU; the Board does not know yet.

        Raises:
            DevicesUnknown: The chip is not listed now.
            DcmiError: It cannot be removed; `Busy` while a container uses it.
        """
        await self._call(node, Dcmi.destroy_vdevice, vnpu)

    async def seen(self) -> None:
        """Return when the Board has the present vNPUs, however long that takes."""
        await self._division.again()

    def place_of(self, chip: Chip) -> str | None:
        """The present host device node of a chip, which may have got another number.

        Returns:
            None if another die is in its place and its own is nowhere: its vNPUs do not exist.
        """
        there = [one for one in self._board.value.chips if one.is_listed]
        if not any(one.name == chip.name and one.has_other_die(chip.uuid) for one in there):
            return chip.device_node
        return next((one.device_node for one in there if one.uuid == chip.uuid), None)

    async def _call(
        self, node: str, function: Callable[[Dcmi, ChipRef, *Ts], T], *arguments: *Ts
    ) -> T:
        chip = self._chip(node)
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
        raise DevicesUnknown(f"the NPU {node} is not listed now: its vNPUs must wait")


def _templates(dcmi: Dcmi, chip: ChipRef) -> dict[int, str]:
    """The templates of a chip's vNPUs, without those that vanish meanwhile."""
    found = {}
    for vnpu in dcmi.vnpus(chip):
        with suppress(IdUnknown):
            found[vnpu] = dcmi.vdevice(chip, vnpu).template
    return found
