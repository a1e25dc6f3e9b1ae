"""Base, gRPC, HTTP, API server, kubelet and pool: the parts that any DRA driver needs.

It must not know any hardware, and imports nothing of the other houses.
"""

__all__ = ["api", "base", "grpc", "http", "kubelet", "pool"]
