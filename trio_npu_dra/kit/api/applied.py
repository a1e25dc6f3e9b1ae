"""Objects that are written by server-side apply, which changes only our fields.

A field that a *manager* applied once and leaves out the next time is removed, unless another
manager has written it too.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trio_npu_dra.kit.api.objects import ApiModel, Items, Node, ObjectMeta


class ManagedFields(ApiModel):
    """metadata.managedFields[]: the fields that one manager wrote, as nested keys `f:<name>`."""

    manager: str = ""
    operation: str = ""
    fields: Any = Field(None, alias="fieldsV1")


class ManagedMeta(ObjectMeta):
    """metadata, with the managers of its fields."""

    managed_fields: Items[ManagedFields] = ()

    def labels_by(self, manager: str) -> frozenset[str]:
        """The keys of the labels that a manager has applied."""
        found: set[str] = set()
        for one in self.managed_fields:
            if (one.manager, one.operation) == (manager, "Apply"):
                fields = one.fields
                for step in ("f:metadata", "f:labels"):
                    fields = fields.get(step) if isinstance(fields, dict) else None
                found |= {key.removeprefix("f:") for key in fields or () if key != "."}
        return frozenset(found)


class ManagedNode(Node):
    """A Node whose labels have several writers."""

    metadata: ManagedMeta
