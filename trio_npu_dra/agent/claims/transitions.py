"""The table of actions on a claim, by the situation of its hold and the goal of a call.

```
absent ──► intended ──► ready ──► undoing ──► absent
           steps, CDI             CDI, steps backwards
```

`lifecycle` follows it for the kubelet's prepare and unprepare, and for the repair. A hold without
steps is never *intended*, and not *undoing* when it is unprepared: one rename or one unlink does it
all. Whatever a death, a cancelled call or a failing disk leaves is a row of the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from trio_npu_dra.agent.holds.entry import Allocated, Entry, EntryState


class Goal(Enum):
    """What a call is for."""

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
    """Intended or ready for an earlier allocation: no pod uses it any more."""
    UNREADABLE = auto()
    """Its record cannot be read; a pod may use it."""


class Action(Enum):
    """How a call gets from the situation to its goal."""

    NOTHING = auto()
    TAKE = auto()
    """Refuse devices of other holders, write the record, then `FINISH`."""
    FINISH = auto()
    """Do the remaining steps, write the CDI file, note that the hold is ready."""
    SHOW = auto()
    """Write the CDI file unless it is right."""
    REPLACE = auto()
    """`UNDO`, but overwrite the record as `TAKE` does.

    A hold of the same chips without steps is only overwritten.
    """
    UNDO = auto()
    """Note that the hold is undoing, remove the CDI file, undo the steps, remove the record."""


TRANSITIONS: Final[Mapping[Situation, Mapping[Goal, Action]]] = {
    found: dict(zip(Goal, actions, strict=False))
    for found, actions in {
        Situation.ABSENT: (Action.TAKE, Action.NOTHING, Action.NOTHING),
        Situation.INTENDED: (Action.FINISH, Action.UNDO, Action.FINISH),
        Situation.READY: (Action.SHOW, Action.UNDO, Action.SHOW),
        Situation.UNDOING: (Action.REPLACE, Action.UNDO, Action.UNDO),
        Situation.OUTDATED: (Action.REPLACE,),  # only a prepare knows of another allocation
        Situation.UNREADABLE: (Action.TAKE, Action.UNDO, Action.NOTHING),
    }.items()
}
"""By situation: the actions for prepare, unprepare and repair."""


def situation(
    entry: Entry | None,
    allocation: tuple[Allocated, ...] | None,
    *,
    is_unreadable: bool,
    is_whole: bool,
) -> Situation:
    """How far a claim's hold got (pure), seeing its entry and the allocation of now, if any."""
    if entry is None:
        return Situation.UNREADABLE if is_unreadable else Situation.ABSENT
    if entry.state is EntryState.UNDOING:
        return Situation.UNDOING
    if allocation is not None and entry.allocation != allocation:
        return Situation.OUTDATED
    return Situation.READY if is_whole else Situation.INTENDED
