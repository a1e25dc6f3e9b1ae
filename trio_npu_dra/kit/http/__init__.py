"""A small HTTP server on trio and h11, for probes, Prometheus and people.

It must not know what its pages show.
"""

from trio_npu_dra.kit.http.handlers import Coalesced, Handler, HttpRequest, HttpResponse, routed
from trio_npu_dra.kit.http.server import HttpLimits, serve_http

__all__ = [
    "Coalesced",
    "Handler",
    "HttpLimits",
    "HttpRequest",
    "HttpResponse",
    "routed",
    "serve_http",
]
