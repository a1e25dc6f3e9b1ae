"""Share flags that are files, with the kernel's rules; `test_share_flag` holds them to DCMI's."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import trio

from trio_npu_dra.ascend.dcmi.errors import Busy, DcmiError, IdUnknown
from trio_npu_dra.ascend.model import Board, Chip
from trio_npu_dra.ascend.share_flag import ShareFlags, cards
from trio_npu_dra.kit.base.observable import Observable


@dataclass
class FlagFiles(ShareFlags):
    """The flags of a node's chips: that of npu-3 is set while there is a file `3`.

    Attributes:
        folder: Where the files are.
        board: The chips.
        used_by: The processes on chips, by physical id.
        faults: What goes wrong next when a flag is changed.
        changes: What was changed, by physical id, in order.
        idle: How many of the next changes change nothing, and report success.
    """

    folder: Path
    board: Observable[Board]
    used_by: dict[int, tuple[int, ...]] = field(default_factory=dict)
    faults: deque[DcmiError] = field(default_factory=deque)
    changes: list[tuple[int, bool]] = field(default_factory=list)
    idle: int = 0

    async def is_set(self, chip: Chip) -> bool:
        """Whether there is the file; a chip that is gone, or not listed, does not answer."""
        await trio.lowlevel.checkpoint()
        if any(not one.is_listed for one in self.board.value.chips if one.key == chip.key):
            raise IdUnknown(-8008, "dcmi_get_device_share_enable")
        return self._path(chip).exists()

    async def change(self, chip: Chip, *, is_set: bool) -> None:
        """Make or remove it for each chip of the card, unless that is in use."""
        await trio.lowlevel.checkpoint()
        if self.faults:
            raise self.faults.popleft()
        if self.idle:
            self.idle -= 1
            return
        (card,) = cards(self.board.value, [chip.device_node])
        for each in card:
            if self.used_by.get(each.physical_id):
                raise Busy(-8013, "dcmi_set_device_share_enable")
            if is_set:
                self.folder.mkdir(exist_ok=True)
                self._path(each).touch()
            else:
                self._path(each).unlink(missing_ok=True)
        self.changes.append((chip.physical_id, is_set))
        await trio.lowlevel.checkpoint()

    async def processes(self, chip: Chip) -> tuple[int, ...]:
        """Who uses it."""
        await trio.lowlevel.checkpoint()
        return self.used_by.get(chip.physical_id, ())

    @property
    def on(self) -> set[int]:
        """The chips that several containers may use now."""
        return {int(path.name) for path in self.folder.glob("*")}

    def _path(self, chip: Chip) -> Path:
        return self.folder / str(chip.physical_id)
