"""Headers, packed and unpacked as hpack does it."""

from __future__ import annotations

import hpack
import pytest

from trio_npu_dra.kit.grpc.headers import Decoder, ReplyEncoder

CALL = [
    (b":method", b"POST"),
    (b":path", b"/v1.DRAPlugin/NodePrepareResources"),
    (b"te", b"trailers"),
]
REPLY = [(b":status", b"200"), (b"content-type", b"application/grpc+proto")]
OVERSIZED = [(b"name", b"x" * 100)] * 4


def test_calls_are_read_as_by_hpack() -> None:
    """Whatever of a call was sent before: all, nothing, all but its timeout."""
    encoder, decoder = hpack.Encoder(), Decoder()
    for timeout in (b"45S", b"45S", b"44999m", b"44998m"):
        call = [*CALL, (b"grpc-timeout", timeout), (b"x", b"y")]
        assert decoder.decode(encoder.encode(call), raw=True) == call


def test_more_indexes_than_a_byte_has() -> None:
    """The table's later entries take two bytes."""
    encoder, decoder = hpack.Encoder(), Decoder()
    many = [(b"n%d" % number, b"") for number in range(100)]
    for _ in range(2):
        assert decoder.decode(encoder.encode(many), raw=True) == many


@pytest.mark.parametrize(
    ("block", "error"),
    [
        (b"\x80", hpack.InvalidTableIndexError),
        (b"\x82\xbe", hpack.InvalidTableIndexError),
        (b"\x82\x20", hpack.HPACKDecodingError),
        (b"\x82\x40\x05na", hpack.HPACKDecodingError),
    ],
)
def test_broken_blocks_are_refused(block: bytes, error: type[Exception]) -> None:
    """An index of nothing, a new size of the table amid headers, an end within one."""
    with pytest.raises(error):
        Decoder().decode(block, raw=True)


@pytest.mark.parametrize("last", [[], [(b"last", b"")]])
def test_the_size_of_all_headers_is_limited(last: list[tuple[bytes, bytes]]) -> None:
    """Those of one byte count, alone and together with others."""
    encoder, decoder = hpack.Encoder(), Decoder()
    decoder.decode(encoder.encode(OVERSIZED[:1]), raw=True)
    decoder.max_header_list_size = 3 * (32 + 104) + 36 * len(last) - 1
    decoder.decode(encoder.encode(OVERSIZED[:2] + last), raw=True)
    with pytest.raises(hpack.OversizedHeaderListError):
        decoder.decode(encoder.encode(OVERSIZED[:3] + last), raw=True)
    assert decoder.max_header_list_size == 3 * (32 + 104) + 36 * len(last) - 1


def test_a_table_that_must_shrink() -> None:
    """A peer that goes on as if the table were as large as before is refused."""
    decoder = Decoder()
    decoder.max_allowed_table_size = 0
    with pytest.raises(hpack.InvalidTableSizeError):
        decoder.decode(b"\x82", raw=True)


def test_replies_have_the_same_bytes_each_time() -> None:
    """Also after the peer has made its table smaller, which it is told once."""
    encoder, decoder = ReplyEncoder(), hpack.Decoder()
    first = encoder.encode(iter(REPLY))
    assert encoder.encode(iter([(b"grpc-status", b"0")])) != first
    assert encoder.encode(iter(REPLY)) == first
    encoder.header_table_size = 0
    told = encoder.encode(iter(REPLY))
    assert told == b"\x20" + first
    assert encoder.encode(iter(REPLY)) == first
    assert decoder.decode(told, raw=True) == REPLY
    assert not decoder.header_table.dynamic_entries
