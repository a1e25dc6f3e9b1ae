"""Requests, responses, and the handlers between them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

import trio


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; the server does not read bodies.

    Attributes:
        path: Without the query.
        method: In upper case, such as `GET`.
        query: The part after the `?`, still encoded.
        accept: The media types that the client wants.
    """

    path: str
    method: str = "GET"
    query: str = ""
    accept: str = ""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; text is sent as UTF-8, and *allow* has the page's methods, for status 405."""

    body: str | bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    allow: str = ""


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]


def routed(routes: Mapping[tuple[str, str], Handler]) -> Handler:
    """One handler for many pages.

    Args:
        routes: A handler for each method and path, such as `("GET", "/healthz")`. A page that
            answers GET also answers HEAD; the server leaves out the body.
    """

    async def respond(request: HttpRequest) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method
        handler = routes.get((method, request.path))
        if handler is not None:
            return await handler(request)
        methods = {method for method, path in routes if path == request.path}
        if not methods:
            return HttpResponse(status=404, body="no such page\n")
        allow = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return HttpResponse(status=405, body=f"this page answers {allow}\n", allow=allow)

    return respond


T = TypeVar("T")


class Coalesced(Generic[T]):
    """Makes a value on request, one at a time, so that its cost does not grow with the clients.

    Args:
        make: Makes the value.
        seconds: How long `get` returns a value after it was made.
    """

    def __init__(self, make: Callable[[], Awaitable[T]], *, seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._making = trio.Lock()
        self._value: T | None = None
        self._fresh_until = -math.inf

    async def get(self) -> T:
        """The newest value; an error of *make* is raised."""
        async with self._making:
            if trio.current_time() >= self._fresh_until:
                self._value = await self._make()
                self._fresh_until = trio.current_time() + self._seconds
        return cast("T", self._value)
