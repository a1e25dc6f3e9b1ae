"""Requests of clients, and the answers to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request; bodies are not read.

    Attributes:
        method: In upper case, such as `GET`.
        path: Without the query.
        query: The part after the `?`, still encoded.
        accept: The media types that the client wants.
    """

    method: str = "GET"
    path: str
    query: str = ""
    accept: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """An answer.

    Attributes:
        body: Text is sent as UTF-8.
        status: The HTTP status.
        content_type: The media type of the body.
        allow: The methods of the page, for status 405.
    """

    body: str | bytes
    status: int = 200
    content_type: str = TEXT
    allow: str = ""


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
