"""Events: what happened to an object, for people."""

from __future__ import annotations

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, KubeObject


class ObjectReference(ApiModel):
    """involvedObject of an Event: what it is about; cluster objects have no namespace."""

    api_version: str = ""
    kind: str = ""
    namespace: str | None = None
    name: str = ""
    uid: str = ""


class EventSource(ApiModel):
    """source of an Event: the program that wrote it, and its node."""

    component: str = ""
    host: str = ""


class Event(KubeObject):
    """An Event, which `kubectl describe` shows below an object.

    An Event about a Node has the namespace `default`. Times are RFC 3339 in whole seconds. Events
    of other programs may lack any field.

    Attributes:
        type: `Normal` or `Warning`.
        reason: One word in CamelCase, for machines.
        count: How often it happened, from *first_timestamp* to *last_timestamp*.
        event_time: When it happened first, of Events that do not count.
    """

    group_version = "v1"
    kind_name = "Event"
    plural = "events"
    namespaced = True

    involved_object: ObjectReference = Field(default_factory=ObjectReference)
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    source: EventSource = Field(default_factory=EventSource)
    reporting_component: str = ""
    reporting_instance: str = ""

    @property
    def when(self) -> str:
        """When it was last seen; empty if it does not say."""
        return self.last_timestamp or self.event_time or ""
