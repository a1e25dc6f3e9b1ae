"""What a peer of a gRPC server may take, of memory, of time and of the loop.

What peers there are: the kubelet with one connection that it keeps, one or two watches of device
health on it and a call for each pod that starts or ends; a second one while the kubelet restarts;
probes, which connect, call once and leave. Each number is far above what these need, and all of
them together keep a server below some 20 MiB whatever it is sent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one server; those of time are judged every `look_seconds`.

    Attributes:
        connections: Open at once. One more displaces another, by the order of
            `server_connections`: so nobody can lock the kubelet out by being there first.
        newcomer_seconds: That a connection has to begin its first call before it is displaced. It
            is also the pace at which connections of a flood are taken in: 320 a second.
        streams: Open at once on one connection, as HTTP/2 recommends; a peer is told and waits.
        watches: Streaming calls at once on one connection. The kubelet needs one, or two while it
            changes versions; each costs a message for every change of a device's health.
        greeting_seconds: Until a connection has said that it speaks HTTP/2.
        idle_seconds: After that a connection without calls is closed, but for the *kept_idle* that
            were used last: a kubelet that does not watch health has nothing but an idle connection
            between two pods, and takes its end for the end of the driver.
        kept_idle: See *idle_seconds*.
        request_seconds: Until a request that has begun is there as a whole.
        reply_seconds: Until a peer has taken what it is sent.
        message_bytes: Of one request. A claim takes 362 bytes at most (namespace, name and UID), so
            that is a pod of 700 claims; messages of 4 MiB, gRPC's usual limit, are 2 million of
            the smallest claims, which take minutes to be parsed.
        half_sent_bytes: Of all requests that are not there as a whole yet, each counted with
            *half_sent_cost*. Beyond, the largest of the connection that has most is given up.
        half_sent_cost: Bytes that a request takes before any of it is there.
        header_bytes: Of one call's headers, packed and unpacked. The kubelet sends some 300.
        frames: HTTP/2 frames that a connection may send at once, small or large. Those of 100 calls
            and of 100 resets, which cost `frame_budget.RESET_COST`, are 1,600.
        frames_per_second: How fast they come back.
        frames_per_reply: How many of them each reply gives back: a call takes 3 to 8.
        look_seconds: How often connections are looked at.
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
