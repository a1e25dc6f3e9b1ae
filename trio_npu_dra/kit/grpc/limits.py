"""How much memory, time and turns of the loop a peer of a gRPC server may take.

The peers are the kubelet and probes. The kubelet keeps one connection, with one or two watches of
device health on it and a call for each pod that starts or ends; while it restarts there is a second
one. Probes connect, call once and leave. Each number is far above what these need, and all of
them together keep a server below some 20 MiB whatever peers send.
"""

from typing import NamedTuple


class Limits(NamedTuple):
    """The limits of one server; those of time are checked every `look_seconds`.

    Attributes:
        connections: Open at once. One more displaces another, in the order of
            `connections`: so a peer that was there first cannot lock the kubelet out.
        newcomer_seconds: How long a connection has to begin its first call before it can be
            displaced. This also sets the pace at which a flood of connections is accepted: 320 a
            second.
        streams: Open at once on one connection, as HTTP/2 recommends; HTTP/2 tells the peer the
            limit, and the peer waits.
        watches: Streaming calls at once on one connection. The kubelet needs one, or two while it
            changes versions; each costs a message for every change of a device's health.
        greeting_seconds: How long a connection has to show that it speaks HTTP/2.
        idle_seconds: When a connection without calls is closed, except for the *kept_idle* that
            were used last: a kubelet that does not watch health has only an idle connection
            between two pods, and takes its end for the end of the driver.
        kept_idle: See *idle_seconds*.
        request_seconds: How long a request may take from its first byte to its last.
        reply_seconds: How long a peer may take to read a reply.
        message_bytes: Size of one request. A claim takes 362 bytes at most (namespace, name and
            UID), so that is a pod of 700 claims; messages of 4 MiB, gRPC's usual limit, are 2
            million of the smallest claims, which take minutes to parse.
        half_sent_bytes: Size of all incomplete requests together, each counted with
            *half_sent_cost*. Beyond it, the largest of the connection that has most is refused.
        half_sent_cost: Bytes that a request costs before any of it has arrived.
        header_bytes: Size of one call's headers, packed and unpacked. The kubelet sends some 300.
        frames: HTTP/2 frames that a connection may send at once, small or large. 100 calls and
            100 resets, which cost `frame_budget.RESET_COST` each, need 1,600.
        frames_per_second: How fast they come back.
        frames_per_reply: How many of them each reply gives back: a call takes 3 to 8.
        look_seconds: How often connections are checked.
    """

    connections: int = 32
    newcomer_seconds: float = 0.1
    streams: int = 100
    watches: int = 4
    greeting_seconds: float = 10
    idle_seconds: float = 300
    kept_idle: int = 4
    request_seconds: float = 10
    reply_seconds: float = 20
    message_bytes: int = 256 << 10
    half_sent_bytes: int = 4 << 20
    half_sent_cost: int = 16 << 10
    header_bytes: int = 16 << 10
    frames: int = 2_000
    frames_per_second: float = 100
    frames_per_reply: int = 20
    look_seconds: float = 1


DEFAULT_LIMITS = Limits()
