"""Named steps at which tests let the daemon die, as the OOM killer or a reboot would end it.

Off unless the environment has `NPU_DRA_CRASH_AT=<point>[:<n>]`: then the process kills itself with
SIGKILL when it comes to that point for the n-th time (the first without n). It is no setting: no
flag, file or manifest turns it on, a value that names no point keeps the daemon from starting, and
a right one is the first line of its log. docs/reliability.md says what each point leaves behind.
"""

from __future__ import annotations

import logging
import os
import signal
from enum import StrEnum
from functools import cache
from itertools import count

from trio_npu_dra.errors import ConfigError

log = logging.getLogger(__name__)

VARIABLE = "NPU_DRA_CRASH_AT"


class Point(StrEnum):
    """All points: the part of the daemon's life, and what is done by then or is about to be."""

    START_SETTINGS_READ = "start.settings-read"
    START_LIBRARY_LOADED = "start.library-loaded"
    START_RECORDS_READ = "start.records-read"
    START_FILES_REPAIRED = "start.files-repaired"
    START_SERVICE_LISTENING = "start.service-listening"
    START_REGISTRATION_LISTENING = "start.registration-listening"
    START_REGISTERED = "start.registered"

    PREPARE_CLAIMS_READ = "prepare.claims-read"
    PREPARE_LOCKED = "prepare.locked"
    PREPARE_RECORD_WRITTEN = "prepare.record-written"  # under a temporary name
    PREPARE_RECORD_RENAMED = "prepare.record-renamed"
    PREPARE_UNLOCKED = "prepare.unlocked"
    PREPARE_ANSWER_DUE = "prepare.answer-due"

    # For a prepare, and for a start that finds a file missing or wrong.
    CDI_WRITTEN = "cdi.written"  # under a temporary name
    CDI_RENAMED = "cdi.renamed"

    UNPREPARE_LOCKED = "unprepare.locked"
    UNPREPARE_CDI_REMOVED = "unprepare.cdi-removed"
    UNPREPARE_RECORD_REMOVED = "unprepare.record-removed"
    UNPREPARE_UNLOCKED = "unprepare.unlocked"
    UNPREPARE_ANSWER_DUE = "unprepare.answer-due"

    PUBLISH_DELETE_DUE = "publish.delete-due"
    PUBLISH_DELETED = "publish.deleted"
    PUBLISH_UPDATE_DUE = "publish.update-due"
    PUBLISH_UPDATED = "publish.updated"
    PUBLISH_CREATE_DUE = "publish.create-due"
    PUBLISH_CREATED = "publish.created"

    STOP_ASKED = "stop.asked"
    STOP_SOCKET_REMOVED = "stop.socket-removed"  # first the registration's, then the service's
    STOP_CALLS_DRAINED = "stop.calls-drained"


_visits = count(1)


@cache
def _armed() -> tuple[str, str]:
    """The name of the armed point and the visit, as the environment has them at the first call."""
    text = os.environ.get(VARIABLE, "")
    name, _, visit = (text if ":" in text else f"{text}:1").partition(":")
    return name, visit


def check() -> None:
    """Say loudly that a point is armed; to be called at the start.

    Raises:
        ConfigError: The variable is set and names no point.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    name, visit = _armed()
    if name not in set(Point) or not visit.isdecimal() or int(visit) == 0:
        raise ConfigError(
            f"{VARIABLE}={text} is no crash point, and it is for tests only: remove the variable"
        )
    log.critical(
        "this process is going to kill itself: %s is set, which is for tests only",
        VARIABLE,
        extra={"point": name, "visit": int(visit)},
    )


def reached(point: Point) -> None:
    """Do nothing, or die here."""
    name, visit = _armed()
    if point == name and next(_visits) == int(visit):
        log.critical("crash point reached", extra={"point": str(point)})
        os.kill(os.getpid(), signal.SIGKILL)
