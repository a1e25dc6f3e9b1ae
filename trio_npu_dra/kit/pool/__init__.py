"""A node's pool of devices, and the publisher that keeps it at the API server.

It knows nothing about the devices themselves, and nothing of claims.
"""

from __future__ import annotations

from trio_npu_dra.kit.pool.diff import plan
from trio_npu_dra.kit.pool.pool import Pool, PoolContent, specs
from trio_npu_dra.kit.pool.publisher import PoolAccepted, PublisherStatus, SliceWritten, publish

__all__ = [
    "Pool",
    "PoolAccepted",
    "PoolContent",
    "PublisherStatus",
    "SliceWritten",
    "plan",
    "publish",
    "specs",
]
