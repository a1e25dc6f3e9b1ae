"""Promises of the stand-in API server that our Kubernetes client never uses."""

from pathlib import Path

import pytest
import trio

from dev.rig.waiting import HANG_SECONDS
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState


@pytest.mark.parametrize(
    ("request_line", "status", "words"),
    [
        ("GET /api/v1/secrets", 404, "text/plain; charset=utf-8"),
        ("GET /healthz", 404, "\r\n\r\n404 page not found\n"),
        ("GET /api/v1/nodes/n", 404, '"details": {"name": "n", "kind": "nodes"}'),
        (
            "GET /apis/resource.k8s.io/v1/namespaces/d/resourceclaims/n",
            404,
            '"details": {"name": "n", "group": "resource.k8s.io", "kind": "resourceclaims"}',
        ),
        ("PATCH /api/v1/nodes/n", 405, "does not allow PATCH"),
    ],
)
async def test_what_it_does_not_have_is_refused(
    request_line: str, status: int, words: str, tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Other resources and verbs get the status that a real API server gives."""
    await nursery.start(serve_api, ApiState(), tmp_path / "api.sock")
    with trio.fail_after(HANG_SECONDS):
        stream = await trio.open_unix_socket(tmp_path / "api.sock")
        async with stream:
            await stream.send_all(
                f"{request_line} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n".encode()
            )
            answer = b"".join([chunk async for chunk in stream]).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert words in answer
