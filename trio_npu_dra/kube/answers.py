"""What the API server's refusals mean: HTTP statuses as the errors of this package."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from trio_npu_dra.errors import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Unavailable,
)

_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}
_TEXT_LIMIT = 300


class Status(BaseModel):
    """A metav1.Status, as sent with every refusal and in ERROR events of a watch."""

    code: int = 0
    message: str = ""
    reason: str = ""


def refusal(asked: str, status: int, body: bytes, *, retry_after: str | None = None) -> KubeError:
    """The error for an answer that is no success.

    Args:
        asked: The request in words, such as `get nodes/n1`.
        status: The HTTP status.
        body: A Status object, or whatever a proxy wrote.
        retry_after: The header, in seconds.
    """
    message = f"{asked}: {_words(body) or 'no reason given'} (HTTP {status})"
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if kind is Unavailable:
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
        return Unavailable(message, status=status, retry_after=seconds)
    return kind(message, status=status)


def _words(body: bytes) -> str:
    try:
        status = Status.model_validate_json(body)
    except ValidationError:
        return body[:_TEXT_LIMIT].decode(errors="replace").strip()
    return status.message or status.reason
