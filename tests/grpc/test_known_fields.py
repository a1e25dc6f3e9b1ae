"""A long reply costs as much memory as its type knows of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from betterproto2 import encode_varint
from hypothesis import given
from hypothesis import strategies as st

from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.kit.grpc._generated import v1
from trio_npu_dra.kit.grpc.known_fields import Read, read_known

LISTED = v1.ListPodResourcesResponse(
    pod_resources=[
        v1.PodResources(
            name="train",
            namespace="ml",
            containers=[
                v1.ContainerResources(name="idle"),
                v1.ContainerResources(
                    name="main",
                    devices=[v1.ContainerDevices(resource_name="a/b", device_ids=["0", "1"])],
                ),
            ],
        ),
        v1.PodResources(name="empty"),
    ]
)
GIGABYTE = 1 << 30

unknown_fields = st.one_of(
    st.binary(max_size=200).map(lambda body: encode_varint(99 << 3 | 2) + varied(body)),
    st.integers(0, 2**64 - 1).map(lambda value: encode_varint(98 << 3) + encode_varint(value)),
    st.binary(min_size=8, max_size=8).map(lambda body: encode_varint(97 << 3 | 1) + body),
    st.binary(min_size=4, max_size=4).map(lambda body: encode_varint(96 << 3 | 5) + body),
)


def varied(body: bytes) -> bytes:
    """Something with its length before it."""
    return encode_varint(len(body)) + body


def reading(body: bytes) -> Read:
    """Give it piece by piece."""
    left = bytearray(body)

    async def read(size: int) -> bytes:
        assert size <= len(left)
        piece = bytes(left[:size])
        del left[:size]
        return piece

    return read


def with_unknown(message: v1.ListPodResourcesResponse, more: Callable[[], bytes]) -> bytes:
    """The message, with *more* in each message of it."""
    found = more()
    for pod in message.pod_resources:
        body = more() + bytes(v1.PodResources(name=pod.name, namespace=pod.namespace))
        for container in pod.containers:
            body += encode_varint(3 << 3 | 2) + varied(more() + bytes(container) + more())
        found += encode_varint(1 << 3 | 2) + varied(body + more())
    return found


@given(data=st.data())
async def test_known_fields_are_read_among_unknown_ones(data: st.DataObject) -> None:
    """Fields of all types on the wire."""
    body = with_unknown(LISTED, lambda: b"".join(data.draw(st.lists(unknown_fields, max_size=2))))
    assert await read_known(reading(body), len(body), v1.ListPodResourcesResponse) == LISTED


async def test_unknown_fields_are_never_in_memory() -> None:
    """A gigabyte of it passes by in pieces."""
    head = encode_varint(5 << 3 | 2) + encode_varint(GIGABYTE)
    inner = encode_varint(3 << 3 | 2) + encode_varint(len(head) + GIGABYTE)
    pod = encode_varint(1 << 3 | 2) + encode_varint(len(inner) + len(head) + GIGABYTE)
    start = pod + inner + head
    zeros = bytes(1 << 16)
    at = 0

    async def read(size: int) -> bytes:
        nonlocal at
        piece = (start[at : at + size] + zeros)[:size]
        assert len(piece) == size
        at += size
        return piece

    size = len(start) + GIGABYTE
    found = await read_known(read, size, v1.ListPodResourcesResponse)
    assert at == size
    assert [len(one.containers) for one in found.pod_resources] == [1]


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05\x0a",
        b"\x0a\x02\x0a\x05",
        b"\x80" * 11,
        b"\x0b",
        b"\x0d\x00",
        b"\x0a\x03\x1a\x05\x00",
        b"\x08\x01",
    ],
)
async def test_bytes_that_are_no_message_are_an_error(body: bytes) -> None:
    """Fields that are cut off, or longer than what they are in, and types that do not exist."""
    with pytest.raises(RpcError, match="the reply does not parse"):
        await read_known(reading(body), len(body), v1.ListPodResourcesResponse)


@given(body=st.binary(max_size=60))
async def test_any_bytes_are_a_message_or_an_error(body: bytes) -> None:
    """Never another exception, and never bytes that come after it."""
    with suppress(RpcError):
        await read_known(reading(body), len(body), v1.ListPodResourcesResponse)
