"""The errors that the API server's answers mean."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from pydantic import BaseModel

from trio_npu_dra.kit.api.parsing import NotUnderstood, parse, shortened
from trio_npu_dra.kit.base.errors import (
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
    404: Unavailable,  # unless the API server itself says that an object is missing
    408: Unavailable,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Unavailable,
}
_SAID_LIMIT: Final = 4096
"""Bytes to decode of an answer that is no Status."""
_WORDS_LIMIT: Final = 2048
"""Characters of the API server's own message, which names each wrong field."""
_NO_HEADERS: Final[Mapping[str, str]] = {}


class StatusDetails(BaseModel, defer_build=True):
    """details of a Status: plural and name of its object."""

    kind: str = ""
    name: str = ""


class Status(BaseModel, defer_build=True):
    """A metav1.Status: every refusal, and the object in ERROR events of a watch."""

    kind: str = ""
    code: int = 0
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None


def is_success(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer is no refusal and is JSON."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return status < 300 and media_type == "application/json"


def refusal(
    asked: str, status: int, body: bytes, headers: Mapping[str, str] = _NO_HEADERS
) -> KubeError:
    """The error for an answer that is no success.

    Args:
        asked: The request as text, such as `get nodes/n1`.
        status: The HTTP status.
        body: A Status object, or the text of a proxy or a login page.
        headers: The answer's.
    """
    if status < 300:
        given = shortened(headers.get("content-type", "of no type"))
        return Unavailable(f"{asked}: the answer is {given}, not JSON: {_text(body)}")
    try:
        said = parse(Status, body)
    except NotUnderstood:
        said = None
    words = (said.message or said.reason)[:_WORDS_LIMIT] if said else _text(body)
    message = f"{asked}: {words or 'no reason given'} (HTTP {status})"
    if "location" in headers:
        message += f"; redirects to {shortened(headers['location'])}, which is not followed"
    if status == 404:
        if said is not None and said.kind == "Status" and said.reason == "NotFound":
            missing = (said.details.kind, said.details.name) if said.details else None
            return NotFound(message, status=status, missing=missing)
        message += "; the object may exist: is this API served, or does a proxy answer?"
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
    except (ValueError, OverflowError):
        return None


def _text(body: bytes) -> str:
    return shortened(" ".join(body[:_SAID_LIMIT].decode(errors="replace").split()))
