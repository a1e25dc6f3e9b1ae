"""An API server of fixed objects on a unix socket: pages, field selectors, and missing rights."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dev.explain.world import Wire
from dev.rig.kubectl import stand_in

PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "ResourceSlice": "resourceslices",
    "ResourceClaim": "resourceclaims",
    "DeviceClass": "deviceclasses",
    "Namespace": "namespaces",
    "DeviceTaintRule": "devicetaintrules",
}


@dataclass(slots=True)
class StaticApi:
    """What is served.

    Attributes:
        objects: All of it.
        forbidden: Plurals that may not be read.
        watched: Counts the watches of claims that have begun.
        changed: Each release tells one watch of claims of a change.
        changed_slice: With it, watches of slices are counted and get it as a change instead.
        ended: Set when the server ends.
        asked: Verb and plural of all requests.
    """

    objects: list[Wire]
    forbidden: frozenset[str] = frozenset()
    watched: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    changed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    changed_slice: Wire | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    asked: set[tuple[str, str]] = field(default_factory=set)

    def answer(self, target: str) -> tuple[int, Wire]:
        """Status and body of a GET."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query))
        if url.path == "/version":
            return 200, {"major": "1", "minor": "37+"}
        parts = url.path.split("/")
        plural = next((part for part in reversed(parts) if part in PLURALS.values()), "")
        if not plural:
            self.asked.add(("list", parts[-1]))
            return 404, {}
        name = parts[parts.index(plural) + 1] if parts[-1] != plural else ""
        self.asked.add(("get" if name else "list", plural))
        if plural in self.forbidden and (not name or plural == "namespaces"):
            return 403, {"kind": "Status", "message": f"you cannot list {plural}"}
        found = [one for one in self.objects if PLURALS[one["kind"]] == plural]
        if plural == PLURALS["DeviceTaintRule"] and not found:
            return 404, {}  # as servers before 1.37, which know none
        if name:
            is_within = "namespaces" in parts and plural != "namespaces"
            namespace = parts[parts.index("namespaces") + 1] if is_within else None
            named = [
                one
                for one in found
                if one["metadata"]["name"] == name and one["metadata"].get("namespace") == namespace
            ]
            missing = {"kind": plural, "name": name}
            status = {"kind": "Status", "reason": "NotFound", "details": missing}
            return (200, named[0]) if named else (404, status)
        return 200, _page(_selected(found, query.get("fieldSelector", "")), query)


def _selected(objects: Sequence[Wire], selector: str) -> list[Wire]:
    """Objects of a name, and Events about an object; other selectors do not matter here."""
    found = list(objects)
    for line in selector.split(","):
        field, _, value = line.partition("=")
        part, _, key = field.partition(".")
        if part in {"involvedObject", "metadata"}:
            found = [one for one in found if one[part].get(key) == value]
    return found


def _page(objects: list[Wire], query: dict[str, str]) -> Wire:
    start, limit = int(query.get("continue", 0)), int(query.get("limit", 500))
    end = start + limit
    metadata = {"resourceVersion": "7"}
    if end < len(objects):
        metadata["continue"] = str(end)
    return {"metadata": metadata, "items": objects[start:end]}


@contextmanager
def served(api: StaticApi, folder: Path, contexts: Mapping[str, str] = {}) -> Iterator[None]:
    """Serve it to `kubectl`, which also has these *contexts*, with their namespaces."""
    socket = folder / "api.sock"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if "watch=true" in self.path:
                self._watch()
                return
            status, body = api.answer(self.path)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _watch(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.flush()
            self.close_connection = True
            if ("resourceslices" if api.changed_slice else "resourceclaims") not in self.path:
                api.ended.wait(10)
                return
            api.watched.release()
            api.changed.acquire(timeout=10)
            claim = next(one for one in api.objects if one["kind"] == "ResourceClaim")
            event = {"type": "MODIFIED", "object": api.changed_slice or claim}
            self.wfile.write(json.dumps(event).encode() + b"\n")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as in the base
            pass

        def address_string(self) -> str:
            return "unix"

    with (
        stand_in(folder, socket, contexts),
        socketserver.ThreadingUnixStreamServer(str(socket), Handler) as server,
    ):
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield
        finally:
            api.ended.set()
            server.shutdown()
            thread.join()
