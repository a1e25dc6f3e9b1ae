"""The private parts of grpclib and h2 that we use are where they were, and do what they did."""

from __future__ import annotations

import asyncio

import grpclib.protocol
import grpclib.server
import h2.connection
import h2.settings
import pytest
from grpclib.const import Cardinality
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import StreamTerminatedError
from grpclib.utils import Wrapper

from dev.grpc.serving import ECHO
from tests.grpc.wire import Wire
from trio_npu_dra.kit.grpc import privates
from trio_npu_dra.kit.grpc.loop import Loop
from trio_npu_dra.kit.grpc.server_link import CONFIG, H2_CONFIG


def connection() -> grpclib.protocol.Connection:
    """A connection of grpclib without a peer."""
    return grpclib.protocol.Connection(h2.connection.H2Connection(H2_CONFIG), Wire(), config=CONFIG)


def test_a_call_has_its_stream() -> None:
    """`stream_of` finds what the call was made of."""
    stream = connection().create_stream(stream_id=1)
    call: privates.GrpcStream = grpclib.server.Stream(
        stream,
        ECHO.path,
        Cardinality.UNARY_UNARY,
        ECHO.request,
        ECHO.reply,
        codec=ProtoCodec(),
        status_details_codec=None,
        dispatch=privates.DispatchServerEvents(),
    )
    assert privates.stream_of(call) is stream


def test_a_closed_connection_lacks_an_attribute() -> None:
    """The error of a call that comes too late has the name that the client looks for."""
    closed = connection()
    closed.create_stream(stream_id=1)
    closed.close()
    with pytest.raises(AttributeError) as caught:
        closed.create_stream(stream_id=3)
    assert caught.value.name == privates.CLOSED_CONNECTION


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_handler_forgets_a_call(loop: Loop, *, cancelled: bool) -> None:
    """It knows the task of a call; once that is forgotten, nothing of it is left."""

    async def accept() -> None:
        handler = grpclib.server.Handler({}, ProtoCodec(), None, privates.DispatchServerEvents())
        stream = connection().create_stream(stream_id=1)
        handler.accept(stream, [(":method", "POST")], lambda: None)
        task = privates.task_of(handler, stream)
        if cancelled:
            handler.cancel(stream)
        else:
            task.cancel()
        assert not handler.check_closed()
        privates.forget_call(handler, stream, task)
        assert handler.check_closed()
        await asyncio.wait([task])

    await loop.in_asyncio(accept())


async def test_a_wrapper_forgets_its_error(loop: Loop) -> None:
    """Until then it raises that error whenever it is entered."""

    async def enter() -> None:
        wrapper = Wrapper()
        wrapper.cancel(StreamTerminatedError("reset"))
        with pytest.raises(StreamTerminatedError), wrapper:
            pass
        privates.forget_error(wrapper)
        with wrapper:
            pass

    await loop.in_asyncio(enter())


def test_h2_has_the_limits_that_we_set() -> None:
    """What h2 remembers of ended streams, of headers and of settings can be bounded."""
    link = privates.FewStreamsH2(H2_CONFIG)
    assert vars(link._closed_streams)["_size_limit"] == 1000
    assert link.decoder.max_header_list_size
    assert link.encoder.header_table_size
    assert isinstance(link.local_settings, h2.settings.Settings)
    link.remote_settings[99] = 1
    del link.remote_settings[99]
