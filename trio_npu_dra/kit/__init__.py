"""Base, gRPC, HTTP, API server, kubelet and pool: the parts that any DRA driver needs.

It must not know any hardware, and imports nothing from the other four packages.
"""

__all__ = ["api", "base", "grpc", "http", "kubelet", "pool"]
