"""A small HTTP server on trio and h11, for probes, Prometheus and people.

`messages` has requests and answers, `routes` finds the page, `connection` speaks HTTP with one
client, `server` decides which connections stay open.
"""

from trio_npu_dra.kit.http.connection import answered
from trio_npu_dra.kit.http.messages import Answer, Handler, Request
from trio_npu_dra.kit.http.routes import LateHandler, routed
from trio_npu_dra.kit.http.server import Limits, serve_http

__all__ = [
    "Answer",
    "Handler",
    "LateHandler",
    "Limits",
    "Request",
    "answered",
    "routed",
    "serve_http",
]
