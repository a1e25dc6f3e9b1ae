"""What drivers do while nothing calls them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.benchmarks.drivers import Driver
from dev.cluster import audit

SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """One driver over some seconds.

    Attributes:
        cpu_percent: CPU time as a share of one core.
        written_bytes: Bytes that it made the kernel write to disks.
        requests: Its requests to the API server.
        writes: Those of them that change something.
        rss_mib: Resident memory, at the end.
        pss_mib: The same, with shared memory counted in part.
    """

    cpu_percent: float
    written_bytes: float
    requests: float
    writes: float
    rss_mib: float
    pss_mib: float


def watch_idle(drivers: Sequence[Driver], audit_log: Path, seconds: float) -> dict[str, Idle]:
    """Leave drivers alone, and see what each does; their names are their users in the audit log."""
    time.sleep(SETTLE_SECONDS)
    mark = audit.mark(audit_log)
    before = [driver.usage() for driver in drivers]
    time.sleep(seconds)
    after = [driver.usage() for driver in drivers]
    requests = audit.requests(audit_log, since=mark)
    return {
        driver.name: Idle(
            cpu_percent=(late.cpu_ms - early.cpu_ms) / seconds / 10,
            written_bytes=late.written_bytes - early.written_bytes,
            requests=sum(request.user == driver.name for request in requests),
            writes=len(audit.writes(requests, user=driver.name)),
            rss_mib=late.rss_mib,
            pss_mib=late.pss_mib,
        )
        for driver, early, late in zip(drivers, before, after, strict=True)
    }
