"""The objects of the stand-in API server, and the rules by which they change.

The rules are those of the real API server where this driver can notice them: generated names,
optimistic concurrency, delete preconditions, no-op updates that change nothing, compacted watch
history, taint times, canonical quantities, immutable fields, rights by verb and resource.
"""

from __future__ import annotations

import copy
import itertools
import json
import secrets
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import trio
from pydantic import Field

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import KubeObject, Named, Node, ResourceClaim, ResourceSlice
from trio_npu_dra.kit.api.pods import Pod
from trio_npu_dra.kit.api.workloads import Job, JobSet, StatefulSet
from trio_npu_dra.lab.standins.api_apply import applied, disown_changes
from trio_npu_dra.lab.standins.api_claims import admit_claim
from trio_npu_dra.lab.standins.api_rules import (
    Kubernetes,
    Terms,
    admit_slice,
    matches,
    now,
    refuse_immutable_changes,
    terms,
)
from trio_npu_dra.lab.standins.api_status import ApiRefusal, invalid, qualified

K = TypeVar("K", bound=KubeObject)
Wire = dict[str, Any]


class ConfigMap(KubeObject):
    """Texts by name; only the conformance tests write some."""

    group_version = "v1"
    kind_name = "ConfigMap"
    plural = "configmaps"
    namespaced = True

    data: Named[str] = Field(default_factory=dict)


KINDS: Mapping[str, type[KubeObject]] = {
    kind.plural: kind
    for kind in (
        *(Node, ResourceSlice, ResourceClaim, Event, ConfigMap, Pod),
        *(Job, JobSet, StatefulSet),
    )
}
_NAME_BASE_LIMIT = 58
"""The API server cuts generateName here, so that name and suffix stay within 63 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """One request, as tests see it.

    Attributes:
        verb: get, list, watch, create, update, patch or delete.
        path: Without the query.
        query: The parameters.
    """

    verb: str
    path: str
    query: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedFault:
    """What happens to one request instead of serving it, or after that.

    Attributes:
        status: Answer with this HTTP status, without processing.
        drop: Close the connection, `before` or `after` processing.
        hang: Never answer, without processing.
        verb: Only a request with this verb meets the fault; `None`: any.
    """

    status: int | None = None
    drop: Literal["before", "after"] | None = None
    hang: bool = False
    verb: str | None = None
    retry_after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    version: int
    plural: str
    type: str
    object: Wire


@dataclass(kw_only=True)
class ApiState:
    """The objects of a small cluster; `serve_api` puts it behind HTTP.

    Belongs to one trio run. Watches see changes made here like any other.

    Attributes:
        token: The bearer token that requests need; `None`: they need none.
        rights: The verbs that are allowed, by plural with a subresource; `None`: all.
        kubernetes: Whose rules for slices hold.
        requests: All requests, oldest first.
    """

    token: str | None = None
    rights: Mapping[str, AbstractSet[str]] | None = None
    kubernetes: Kubernetes = field(default_factory=Kubernetes)
    requests: list[SeenRequest] = field(default_factory=list)
    _objects: dict[str, dict[tuple[str, str], Wire]] = field(
        default_factory=lambda: {plural: {} for plural in KINDS}
    )
    _history: list[_Change] = field(default_factory=list)
    _version: int = 100
    _compacted: int = 0
    _changed: trio.Event = field(default_factory=trio.Event)
    _faults: deque[InjectedFault] = field(default_factory=deque)
    _watch_ends: trio.Event = field(default_factory=trio.Event)

    # --- for tests and the demo ------------------------------------------------------------------

    def add(self, obj: K) -> K:
        """Store an object as if a client had created it."""
        return type(obj).model_validate(self.create(obj.plural, obj.to_wire()))

    def put(self, obj: K) -> K:
        """Replace an object as if a client had, whatever its resourceVersion."""
        wire = obj.to_wire()
        wire["metadata"].pop("resourceVersion", None)
        return type(obj).model_validate(self.update(obj.plural, wire))

    def remove(self, kind: type[KubeObject], name: str, namespace: str = "") -> None:
        """Delete an object as if a client had."""
        self.delete(kind.plural, namespace, name, {})

    def all(self, kind: type[K]) -> tuple[K, ...]:
        """All objects of a kind, by name."""
        stored = self._objects[kind.plural]
        return tuple(kind.model_validate(stored[key]) for key in sorted(stored))

    def compact(self) -> None:
        """Forget history: a watch from before now gets 410."""
        self._compacted = self._version
        self._history.clear()

    def bookmark(self) -> None:
        """Send each watch a bookmark with the newest resourceVersion."""
        self._version += 1
        for plural, kind in KINDS.items():
            obj = {
                "apiVersion": kind.group_version,
                "kind": kind.kind_name,
                "metadata": {"resourceVersion": str(self._version)},
            }
            self._record(plural, "BOOKMARK", obj)

    def end_watches(self) -> None:
        """End every open watch, as the API server does after timeoutSeconds."""
        self._watch_ends.set()
        self._watch_ends = trio.Event()

    def fail_next(
        self,
        count: int = 1,
        *,
        status: int | None = None,
        drop: Literal["before", "after"] | None = None,
        hang: bool = False,
        verb: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        """Let a fault meet the next *count* requests (with *verb*); see `InjectedFault`."""
        fault = InjectedFault(
            status=status, drop=drop, hang=hang, verb=verb, retry_after=retry_after
        )
        self._faults.extend(itertools.repeat(fault, count))

    def heal(self) -> None:
        """Forget the faults that are still to come."""
        self._faults.clear()

    def asked(self, verb: str, plural: str = "") -> int:
        """How many requests with *verb* (for *plural*) came in; dry runs do not count."""
        return sum(
            request.verb == verb
            and "dryRun" not in request.query
            and (not plural or f"/{plural}" in request.path)
            for request in self.requests
        )

    # --- for the server --------------------------------------------------------------------------

    def take_fault(self, verb: str) -> InjectedFault | None:
        """The fault that this request meets, if any."""
        for fault in self._faults:
            if fault.verb in {None, verb}:
                self._faults.remove(fault)
                return fault
        return None

    @property
    def watch_ends(self) -> trio.Event:
        """Set when the watches that are open now must end."""
        return self._watch_ends

    def authorize(self, verb: str, resource: str, name: str) -> None:
        """Refuse what the rights do not allow; a *resource* may have a subresource."""
        if self.rights is None or verb in self.rights.get(resource, ()):
            return
        plural = resource.partition("/")[0]
        group = KINDS[plural].group_version.rpartition("/")[0]
        what = f'{_qualified(plural)} "{name}"' if name else _qualified(plural)
        why = f'User "standin" cannot {verb} resource "{resource}" in API group "{group}"'
        raise ApiRefusal(403, "Forbidden", f"{what} is forbidden: {why}")

    def get(self, plural: str, namespace: str, name: str) -> Wire:
        """Read one object."""
        try:
            return self._objects[plural][namespace, name]
        except KeyError:
            raise _not_found(plural, name) from None

    def list(
        self,
        plural: str,
        selector: str,
        *,
        labels: str = "",
        namespace: str = "",
        limit: int = 0,
        more: str = "",
    ) -> Wire:
        """Read the objects that the selectors admit.

        Args:
            plural: Their kind.
            selector: A field selector; all fit an empty one.
            labels: A selector of labels, by equality alone.
            namespace: Theirs; all namespaces without it.
            limit: Objects in one page; 0 for no pages.
            more: Where this page begins, from the page before. Unlike the API server, it shows
                objects as they are now, not as they were for the first page.
        """
        stored, wanted = self._objects[plural], terms(plural, selector, labels, namespace)
        version, last = json.loads(more) if more else (self._version, ["", ""])
        keys = [key for key in sorted(stored) if key > tuple(last) and matches(stored[key], wanted)]
        page = keys[:limit] if limit else keys
        metadata = {"resourceVersion": str(version)}
        if len(page) < len(keys):
            metadata["continue"] = json.dumps([version, page[-1]])
        kind = KINDS[plural]
        return {
            "apiVersion": kind.group_version,
            "kind": f"{kind.kind_name}List",
            "metadata": metadata,
            "items": [stored[key] for key in page],
        }

    def create(self, plural: str, wire: Wire, *, dry_run: bool = False) -> Wire:
        """Store a new object."""
        obj = copy.deepcopy(wire)
        meta = obj.setdefault("metadata", {})
        base = meta.get("generateName", "")
        if not meta.get("name"):
            meta["name"] = base[:_NAME_BASE_LIMIT] + secrets.token_hex(3)[:5]
        key = (meta.get("namespace", ""), meta["name"])
        if key in self._objects[plural]:
            words = f'{_qualified(plural)} "{meta["name"]}" already exists'
            raise ApiRefusal(409, "AlreadyExists", words)
        meta["uid"] = str(uuid.uuid4())
        meta["creationTimestamp"] = now()
        self._admit(plural, obj, None)
        if not dry_run:
            self._store(plural, key, "ADDED", obj)
        return obj

    def update(self, plural: str, wire: Wire) -> Wire:
        """Replace an object; equal content changes nothing, not even the resourceVersion."""
        obj = copy.deepcopy(wire)
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if plural == Event.plural and key not in self._objects[plural]:
            return self.create(plural, obj)  # an update of an Event may create it
        old = self.get(plural, *key)
        for precondition, why in (
            ("uid", "Precondition failed: UID in precondition"),
            ("resourceVersion", "the object has been modified; please apply your changes"),
        ):
            stored = old["metadata"][precondition]
            if meta.get(precondition, stored) != stored:
                raise _conflict(plural, meta["name"], why)
        for kept in ("uid", "resourceVersion", "creationTimestamp"):
            meta[kept] = old["metadata"][kept]
        refuse_immutable_changes(plural, old, obj)
        disown_changes(old, obj)
        self._admit(plural, obj, old)
        if obj != old:
            self._store(plural, key, "MODIFIED", obj)
        return obj

    def apply(self, plural: str, wire: Wire, manager: str, subresource: str = "") -> Wire:
        """Write some fields; equal ones change nothing but who has written them.

        The *subresource* `status` has that part alone, and only of an object that exists.
        """
        meta = wire["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = self._objects[plural].get(key)
        if subresource:
            old = self.get(plural, *key)
            wire = {subresource: wire.get(subresource, {}), "metadata": meta}
        if old is not None and meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
            raise invalid(old, f'metadata.uid: Invalid value: "{meta["uid"]}": field is immutable')
        if old is None and "uid" in meta:
            why = f"uid mismatch: {meta['uid']} was given, and no existing object was found"
            raise _conflict(plural, meta["name"], why)
        new = applied(old, wire, manager)
        if old is None:
            return self.create(plural, new)
        self._admit(plural, new, old)
        if new != old:
            self._store(plural, key, "MODIFIED", new)
        return new

    def delete(self, plural: str, namespace: str, name: str, preconditions: Wire) -> Wire:
        """Remove an object if it is still the expected one."""
        old = self.get(plural, namespace, name)
        for key, value in preconditions.items():
            if old["metadata"][key] != value:
                word = "UID" if key == "uid" else "ResourceVersion"
                why = f"the {word} in the precondition ({value}) does not match"
                raise _conflict(plural, name, why)
        del self._objects[plural][namespace, name]
        gone = copy.deepcopy(old)
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._record(plural, "DELETED", gone)
        return gone

    async def changes(
        self, plural: str, selector: str, version: int, *, labels: str = "", namespace: str = ""
    ) -> Iterable[Wire]:
        """Wait for watch events after *version*, at least one."""
        wanted = terms(plural, selector, labels, namespace)
        while True:
            if version < self._compacted:
                raise ApiRefusal(410, "Expired", f"too old resource version: {version}")
            events = list(self._after(plural, wanted, version))
            if events:
                return events
            await self._changed.wait()

    def _after(self, plural: str, wanted: Terms, version: int) -> Iterator[Wire]:
        for change in self._history:
            if change.version <= version or change.plural != plural:
                continue
            if change.type == "BOOKMARK" or matches(change.object, wanted):
                yield {"type": change.type, "object": change.object}

    def _admit(self, plural: str, obj: Wire, old: Wire | None) -> None:
        if plural == ResourceSlice.plural:
            admit_slice(obj, old, kubernetes=self.kubernetes)
        if plural == ResourceClaim.plural:
            admit_claim(obj, old)

    def _store(self, plural: str, key: tuple[str, str], change: str, obj: Wire) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        stored = json.loads(json.dumps(obj))
        self._objects[plural][key] = stored
        self._record(plural, change, stored)

    def _record(self, plural: str, change: str, obj: Wire) -> None:
        self._history.append(_Change(version=self._version, plural=plural, type=change, object=obj))
        self._changed.set()
        self._changed = trio.Event()


def _qualified(plural: str) -> str:
    return qualified(plural, KINDS[plural].group_version)


def _not_found(plural: str, name: str) -> ApiRefusal:
    group = KINDS[plural].group_version.rpartition("/")[0]
    details = {"name": name, **({"group": group} if group else {}), "kind": plural}
    return ApiRefusal(404, "NotFound", f'{_qualified(plural)} "{name}" not found', details)


def _conflict(plural: str, name: str, why: str) -> ApiRefusal:
    words = f'Operation cannot be fulfilled on {_qualified(plural)} "{name}": {why}'
    return ApiRefusal(409, "Conflict", words)
