"""One request on a fresh connection."""

from __future__ import annotations

import h11
import trio


async def get(port: int, target: str, accept: str = "*/*") -> tuple[int, str]:
    """GET a page of this machine: status and body."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    status, body = await ask(stream, "GET", target, accept)
    return status, body.decode()


async def ask(
    stream: trio.SocketStream, method: str, target: str, accept: str = "*/*"
) -> tuple[int, bytes]:
    """One request on *stream*, which is closed: status and body."""
    async with stream:
        client = h11.Connection(h11.CLIENT)
        headers = [("Host", "node"), ("Connection", "close"), ("Accept", accept)]
        request = h11.Request(method=method, target=target, headers=headers)
        await stream.send_all(client.send(request) + client.send(h11.EndOfMessage()))
        status, body = 0, b""
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return status, body
