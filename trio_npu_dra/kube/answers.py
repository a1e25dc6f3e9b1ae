"""What the API server's answers mean: HTTP statuses as the errors of this package."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

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

_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
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
_TEXT_LIMIT: Final = 300
_NO_HEADERS: Final[Mapping[str, str]] = {}


class Status(BaseModel):
    """A metav1.Status, as sent with every refusal and in ERROR events of a watch."""

    code: int = 0
    message: str = ""
    reason: str = ""


def is_success(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer has what was asked for: neither a refusal nor anything but JSON."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return status < 300 and media_type == "application/json"


def refusal(
    asked: str, status: int, body: bytes, headers: Mapping[str, str] = _NO_HEADERS
) -> KubeError:
    """The error for an answer that is no success.

    Args:
        asked: The request in words, such as `get nodes/n1`.
        status: The HTTP status.
        body: A Status object, or whatever a proxy or a login page wrote.
        headers: Of the answer.
    """
    if status < 300:
        given = headers.get("content-type", "of no type")
        return Unavailable(f"{asked}: the answer is {given}, not JSON: {_text(body)}")
    message = f"{asked}: {_words(body) or 'no reason given'} (HTTP {status})"
    if "location" in headers:
        message += f"; redirects to {headers['location']}, which is not followed"
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    if kind is Unavailable:
        seconds = _seconds(headers.get("retry-after", ""))
        return Unavailable(message, status=status, retry_after=seconds)
    return kind(message, status=status)


def _seconds(retry_after: str) -> float | None:
    """The header's seconds, given as such or as a date (RFC 9110, 10.2.3)."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def _words(body: bytes) -> str:
    try:
        status = Status.model_validate_json(body)
    except ValidationError:
        return _text(body)
    return status.message or status.reason


def _text(body: bytes) -> str:
    return body[:_TEXT_LIMIT].decode(errors="replace").strip()
