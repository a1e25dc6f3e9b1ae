"""Finds the page that answers a request, which may not be there yet."""

from __future__ import annotations

from collections.abc import Mapping

from trio_npu_dra.kit.base.observable import Observable
from trio_npu_dra.kit.http.messages import Handler, HttpRequest, HttpResponse


class LateHandler:
    """A handler for which requests wait until it is there, as long as their connections last."""

    def __init__(self) -> None:
        self._handler: Observable[Handler | None] = Observable(None)

    def become(self, handler: Handler) -> None:
        """Let *handler* answer."""
        self._handler.set(handler)

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request."""
        handler = await self._handler.wait_until(lambda found: found is not None)
        assert handler is not None  # that is what was waited for
        return await handler(request)


def routed(routes: Mapping[tuple[str, str], Handler]) -> Handler:
    """One handler for many pages.

    Args:
        routes: A handler for each method and path, such as `("GET", "/healthz")`. A page that
            answers GET also answers HEAD; the server leaves out the body.
    """

    async def answer(request: HttpRequest) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method
        handler = routes.get((method, request.path))
        if handler is not None:
            return await handler(request)
        methods = {method for method, path in routes if path == request.path}
        if not methods:
            return HttpResponse(status=404, body="no such page\n")
        allow = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return HttpResponse(status=405, body=f"this page answers {allow}\n", allow=allow)

    return answer
