"""Refusals of the stand-in API server."""

from __future__ import annotations

from typing import Any


class ApiRefusal(Exception):
    """Becomes an HTTP status and a metav1.Status.

    Args:
        code: The HTTP status.
        reason: The machine-readable word, such as `NotFound`.
        message: For people.
        details: Kind, name and group of the object that it is about.
    """

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, str] | None = None
    ) -> None:
        self.code = code
        self.reason = reason
        self.details = details
        super().__init__(message)

    def to_wire(self) -> dict[str, Any]:
        """The Status object."""
        return {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": str(self),
            **({"details": self.details} if self.details else {}),
        }


class NoSuchPath(Exception):
    """A path that is not served, such as that of a disabled API group: the answer is no Status."""


def qualified(word: str, group_version: str) -> str:
    """A kind or plural with its API group, as messages write it."""
    group, _, version = group_version.partition("/")
    return f"{word}.{group}" if version else word


def invalid(obj: dict[str, Any], why: str) -> ApiRefusal:
    """The refusal of an object that validation does not let through."""
    kind, name = qualified(obj["kind"], obj["apiVersion"]), obj["metadata"]["name"]
    return ApiRefusal(422, "Invalid", f'{kind} "{name}" is invalid: {why}')
