"""docs/security.md has the numbers of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_npu_dra.kit.api import bodies, client, parsing, transport
from trio_npu_dra.kit.base.storage import SIZE_LIMIT
from trio_npu_dra.kit.grpc.limits import DEFAULT_LIMITS as RPC
from trio_npu_dra.kit.http import HttpLimits
from trio_npu_dra.kit.http.connection import HEAD_LIMIT

PAGE = " ".join((Path(__file__).parents[2] / "docs/security.md").read_text().split())


@pytest.mark.parametrize(
    "words",
    [
        f"{HttpLimits().connections} connections at most",
        f"{HEAD_LIMIT >> 10} KiB of a request's line and headers",
        f"1. {RPC.connections} connections;",
        f"{RPC.streams} streams and {RPC.watches} watches",
        f"{RPC.header_bytes >> 10} KiB of headers",
        f"{RPC.message_bytes >> 10} KiB a request; {RPC.half_sent_bytes >> 20} MiB for all",
        f"{RPC.frames:,} HTTP/2 frames at once",
        f"then {RPC.frames_per_second:g} a second, {RPC.frames_per_reply} more for each reply",
        f"{RPC.greeting_seconds:g} s for the greeting, {RPC.reply_seconds:g} s to take a reply",
        f"{RPC.idle_seconds:g} s without a call",
        f"{bodies.OBJECT_LIMIT >> 20} MiB an object and {bodies.LIST_LIMIT >> 20} MiB a list",
        f"{parsing.VALUES_LIMIT:,} JSON values an answer",
        f"{client.OBJECTS_LIMIT:,} objects in a list",
        f"{transport.AT_ONCE} requests at once",
        f"up to {SIZE_LIMIT >> 20} MiB,",
    ],
)
def test_the_page_has_the_limit(words: str) -> None:
    """The page has the same number as the code."""
    assert words in PAGE
