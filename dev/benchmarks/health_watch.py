"""When the API server received and accepted updates of ResourceSlices, from its audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """An update of a ResourceSlice, as the API server's audit log has it.

    Attributes:
        received_at: When the request arrived, in seconds since 1970.
        accepted_at: When it was answered with success.
    """

    received_at: float
    accepted_at: float


def slice_updates(audit_log: Path, user: str) -> list[Write]:
    """All updates of ResourceSlices by *user* that were accepted."""
    events = map(json.loads, audit_log.read_bytes().splitlines())
    return [
        Write(
            received_at=_seconds(event["requestReceivedTimestamp"]),
            accepted_at=_seconds(event["stageTimestamp"]),
        )
        for event in events
        if event["verb"] == "update"
        and event["user"].get("username") == user
        and event.get("objectRef", {}).get("resource") == "resourceslices"
        and event["responseStatus"]["code"] == 200
    ]


def last_between(writes: Iterable[Write], start: float, end: float) -> Write | None:
    """The last write that was received and accepted between two times."""
    fitting = [write for write in writes if start <= write.received_at and write.accepted_at <= end]
    return max(fitting, key=lambda write: write.accepted_at, default=None)


def _seconds(rfc3339: str) -> float:
    return datetime.fromisoformat(rfc3339).timestamp()
