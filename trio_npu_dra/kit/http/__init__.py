"""A small HTTP server on trio and h11, for probes, Prometheus and people.

`messages` has requests and answers, `routes` finds the page, `connection` speaks HTTP with one
client, `server` decides which connections stay open.
"""

from trio_npu_dra.kit.http.connection import answered
from trio_npu_dra.kit.http.messages import Handler, HttpRequest, HttpResponse
from trio_npu_dra.kit.http.routes import LateHandler, routed
from trio_npu_dra.kit.http.server import HttpLimits, serve_http

__all__ = [
    "Handler",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "LateHandler",
    "answered",
    "routed",
    "serve_http",
]
