"""What is done about a claim, by how far its hold got and what is wanted of it.

```
absent ──► intended ──► ready ──► undoing ──► absent
           steps, CDI             CDI, steps backwards
```

`holding` does what the table says, for the kubelet's prepare and unprepare and for the repair. A
hold that needs no step is never *intended*, and is not *undoing* when it is unprepared: one rename
or one unlink takes it all the way. Whatever a death, a cancelled call or a failing disk leaves is a
row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState


class Goal(Enum):
    """What is wanted."""

    PREPARE = auto()
    UNPREPARE = auto()
    REPAIR = auto()


class Situation(Enum):
    """How far a hold got."""

    ABSENT = auto()
    INTENDED = auto()
    READY = auto()
    UNDOING = auto()
    OUTDATED = auto()
    """Intended or ready for another allocation than is wanted now: no pod uses it any more."""
    UNREADABLE = auto()
    """Its record cannot be read; a pod may use it."""


class Action(Enum):
    """What to do."""

    NOTHING = auto()
    REFUSE = auto()
    """Nothing: the recorded hold on which the answer relied has been released."""
    TAKE = auto()
    """Refuse what others hold, write the record, then as `FINISH`."""
    FINISH = auto()
    """Do the steps that are left, write the CDI file, note that the hold is ready."""
    SHOW = auto()
    """See that the CDI file is right."""
    REPLACE = auto()
    """Take back as `UNDO` does, but overwrite the record as `TAKE` does instead of removing it.

    Nothing is taken back where the chips are the same and no step was begun.
    """
    UNDO = auto()
    """Note that the hold is being undone, then remove CDI file, undo steps, remove record."""


TRANSITIONS: Final[Mapping[Situation, Mapping[Goal, Action]]] = {
    Situation.ABSENT: {
        Goal.PREPARE: Action.TAKE,
        Goal.UNPREPARE: Action.NOTHING,
        Goal.REPAIR: Action.NOTHING,
    },
    Situation.INTENDED: {
        Goal.PREPARE: Action.FINISH,
        Goal.UNPREPARE: Action.UNDO,
        Goal.REPAIR: Action.FINISH,
    },
    Situation.READY: {
        Goal.PREPARE: Action.SHOW,
        Goal.UNPREPARE: Action.UNDO,
        Goal.REPAIR: Action.SHOW,
    },
    Situation.UNDOING: {
        Goal.PREPARE: Action.REPLACE,
        Goal.UNPREPARE: Action.UNDO,
        Goal.REPAIR: Action.UNDO,
    },
    Situation.OUTDATED: {Goal.PREPARE: Action.REPLACE},
    Situation.UNREADABLE: {
        Goal.PREPARE: Action.TAKE,
        Goal.UNPREPARE: Action.UNDO,
        Goal.REPAIR: Action.NOTHING,
    },
}


def situation(
    entry: Entry | None,
    allocation: tuple[Allocated, ...] | None,
    *,
    is_unreadable: bool,
    is_whole: bool,
) -> Situation:
    """How far a claim's hold got (pure).

    Args:
        entry: What the ledger has of it.
        allocation: What it is to answer for; None where that does not matter.
        is_unreadable: Whether there is a record that cannot be read.
        is_whole: Whether it is ready, and nothing that was done for it is lost.
    """
    if entry is None:
        return Situation.UNREADABLE if is_unreadable else Situation.ABSENT
    if entry.state is EntryState.UNDOING:
        return Situation.UNDOING
    if allocation is not None and entry.allocation != allocation:
        return Situation.OUTDATED
    return Situation.READY if is_whole else Situation.INTENDED
