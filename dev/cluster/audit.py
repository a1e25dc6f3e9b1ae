"""The requests to the API server, from its audit log."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_DECISION = "authorization.k8s.io/decision"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that has ended.

    `code` is the HTTP status; `resource` is a plural (`resourceslices`), empty
    for a request that is not about a resource; `group` is empty for the core's;
    `is_authorized` says whether the roles of the user allow it.
    """

    user: str
    agent: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    uri: str
    code: int
    is_authorized: bool

    @property
    def writes(self) -> bool:
        """Whether it changes something (a dry run does not)."""
        return self.verb in WRITES and "dryRun" not in self.uri

    @classmethod
    def parse(cls, event: dict[str, Any]) -> Request:
        """Read an event of audit.k8s.io/v1."""
        about = event.get("objectRef", {})
        return cls(
            user=event["user"].get("username", ""),
            agent=event.get("userAgent", ""),
            verb=event["verb"],
            group=about.get("apiGroup", ""),
            resource=about.get("resource", ""),
            subresource=about.get("subresource", ""),
            namespace=about.get("namespace", ""),
            name=about.get("name", ""),
            uri=event["requestURI"],
            code=event.get("responseStatus", {}).get("code", 0),
            is_authorized=event.get("annotations", {}).get(_DECISION) != "forbid",
        )


def mark(log: Path) -> int:
    """The present end of the log."""
    return log.stat().st_size


def requests(log: Path, *, since: int = 0) -> list[Request]:
    """The requests that ended after a mark, in the order in which they ended."""
    with log.open("rb") as stream:
        stream.seek(since)
        lines = stream.read().splitlines(keepends=True)
    return [Request.parse(json.loads(line)) for line in lines if line.endswith(b"\n")]


def writes(
    seen: Iterable[Request], *, resource: str | None = None, user: str | None = None
) -> list[Request]:
    """The requests that change something: those about that plural, or of that user, if given."""
    return [
        request
        for request in seen
        if request.writes and resource in {None, request.resource} and user in {None, request.user}
    ]
