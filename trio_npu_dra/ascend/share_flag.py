"""The share flag of chips: while it is set, several containers may use a chip at once.

Facts (DCMI reference; the kernel module's source): without the flag a chip belongs to the first
unprivileged mount namespace that opens it, until that ends. The flag changes only while nobody uses
the chip. One call sets it for all dies of an A3 card. A reboot resets it, unless the node is set to
recover it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import trio

from trio_npu_dra.ascend.dcmi.client import Dcmi
from trio_npu_dra.ascend.dcmi.errors import DcmiError
from trio_npu_dra.ascend.dcmi.worker import DcmiWorker
from trio_npu_dra.ascend.division_poll import DivisionPoll
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.traits import TRAITS

_IN_USE: Final = frozenset({-8013, -8020})
"""The kernel's EBUSY, as versions of the library report it."""
_SEEN_SECONDS: Final = 3.0
"""How long a change waits for the Board; if a chip hangs, its next reading updates that."""

Card = tuple[Chip, ...]
"""Chips whose flags change together: the dies of an A3 card, else one chip."""


class ShareFlags:
    """Reads and changes the flags of this node's chips; *division* has the Board's read again."""

    def __init__(self, worker: DcmiWorker, dcmi: Dcmi, division: DivisionPoll) -> None:
        self._worker = worker
        self._dcmi = dcmi
        self._division = division

    async def is_set(self, chip: Chip) -> bool:
        """Whether several containers may use the chip now.

        Raises:
            DcmiError: It cannot be read; `NotSupported` if the chip cannot be shared at all.
        """
        return await self._worker.call(self._dcmi.device_share, chip.ref, device=chip.ref)

    async def change(self, chip: Chip, *, is_set: bool) -> None:
        """Set or reset the flag of a chip, and with it of all of its card; the Board knows soon.

        Raises:
            Busy: The card is in use.
            DcmiError: It failed.
        """

        def change() -> None:
            self._dcmi.set_device_share(chip.ref, enabled=is_set)

        await self._worker.call(change, device=chip.ref)
        with trio.move_on_after(_SEEN_SECONDS):
            await self._division.again()

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """The ids of the processes that use a chip.

        Raises:
            DcmiError: They cannot be read.
        """
        return await self._worker.call(self._dcmi.processes, chip.ref, device=chip.ref)


def cards(board: Board, nodes: Collection[str]) -> tuple[Card, ...]:
    """The chips with these host device nodes, each with those whose flags change with its own.

    A chip that the library does not list is left out: it cannot be asked, and its numbers may name
    another one now.
    """
    there = [chip for chip in board.chips if chip.is_listed]
    return tuple(dict.fromkeys(_card(chip, there) for chip in there if chip.device_node in nodes))


def is_in_use(error: DcmiError) -> bool:
    """Whether a flag was not changed because the chip is in use."""
    return error.code in _IN_USE


def _card(chip: Chip, chips: Iterable[Chip]) -> Card:
    if TRAITS[chip.family].dies_of_module == 1:
        return (chip,)
    return tuple(
        other for other in chips if (other.family, other.card_id) == (chip.family, chip.card_id)
    )
