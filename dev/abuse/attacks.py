"""All attacks, with their sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from dev.abuse import api_attacks, file_attacks, http_attacks, rpc_attacks
from dev.abuse.file_attacks import (
    cdi_file,
    fault_memory,
    fifo,
    folder,
    lock,
    planted,
    record,
)
from dev.abuse.node import Node
from dev.rig.parts import Rig

Begin: TypeAlias = Callable[[Node, int], AbstractAsyncContextManager[None]]
Before: TypeAlias = Callable[[Rig, int], AbstractAsyncContextManager[None]]


def _nothing(_: object, _size: int) -> nullcontext[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        number: Its group, by which it can be chosen; may be empty.
        name: A description, with a place for the size.
        begin: Attacks with so many clients, requests or bytes, and ends on leaving.
        small: The size in tests.
        full: The sizes in the table of docs/security.md.
        descriptors: How many the daemon may have in that table.
        seconds: How long the attack lasts there at least.
        before: What it puts in place before the daemon starts.
    """

    number: str
    name: str
    begin: Begin
    small: int = 0
    full: Sequence[int] = (0,)
    descriptors: int = 1024
    seconds: float = 5.0
    before: Before = _nothing


NONE: Final = Attack("", "none", _nothing)

HTTP: Final = (
    Attack("A1", "h2c rapid reset, {} streams", http_attacks.rapid_reset, 500, (1_000, 5_000)),
    Attack("A2", "{} clients that never read", http_attacks.never_read, 300, (1_100,), seconds=50),
    Attack("A3", "{} h2c connections of 99 requests, window 0", http_attacks.no_window, 4, (10,)),
    Attack(
        "A4",
        "{} clients on /healthz",
        partial(http_attacks.hammer, "/healthz"),
        64,
        (64,),
        seconds=20,
    ),
    Attack(
        "A4",
        "{} clients on /metrics",
        partial(http_attacks.hammer, "/metrics"),
        64,
        (64,),
        seconds=20,
    ),
    Attack("", "{} clients that never send", http_attacks.never_send, 300, (1_100,)),
    Attack("", "{} clients that never end their headers", http_attacks.slow_headers, 300, (1_100,)),
    Attack("", "{} clients that come and go", http_attacks.come_and_go, 16, (64,)),
    Attack("", "{} requests before an answer is read", http_attacks.pipelined, 500, (20_000,)),
    Attack("", "8 clients with {} MiB of headers", http_attacks.huge_headers, 1, (20,)),
    Attack("", "8 clients with bodies of {} MiB", http_attacks.huge_bodies, 4, (200,)),
)

END: Final = Attack(
    "A2", "SIGTERM beside {} clients that never read", http_attacks.end_beside, 5, (5,)
)

RPC: Final = (
    Attack("A8", "{} connections that never call", rpc_attacks.idle, 300, (1_100,)),
    Attack("A8", "{} connections within the preface", rpc_attacks.half_open, 300, (1_100,)),
    Attack("A8", "{} calls of 4 MiB half sent", rpc_attacks.half_sent, 8, (60,)),
    Attack("A8", "rapid reset of {} calls", rpc_attacks.rapid_reset, 500, (1_000, 5_000)),
    Attack("A8", "{} pings, answers unread", rpc_attacks.pings, 20_000, (1_000_000,)),
)

MANY_CALLERS: Final = Attack(
    "A8",
    "{} connections that never call, with 4,096 descriptors",
    rpc_attacks.idle,
    full=(3_000,),
    descriptors=4096,
)

API: Final = (
    Attack("A7", "a claim with {} MiB of wrong types", api_attacks.wrong_types, 1, (7,)),
    Attack("A7", "a watch of {} MiB", api_attacks.endless_watch, 8, (200,)),
)


SLOW_WATCH: Final = Attack(
    "A7", "a watch of a byte a second", api_attacks.slow_watch, full=(40,), seconds=40
)


@dataclass(frozen=True, slots=True)
class Plant:
    """Something foreign in the driver's folders.

    Attributes:
        number: As for an attack.
        place: Its place; two with the same place cannot be there at once.
        name: A description, with a place for the size.
        put: Puts it there, with a size, and removes it at the end.
        small: The size in tests.
        full: The size in the table.
    """

    number: str
    place: str
    name: str
    put: Callable[[Rig, int], AbstractContextManager[None]]
    small: int = 0
    full: int = 0


_Find: TypeAlias = Callable[[Rig], Path]


def _put(
    find: _Find, make: Callable[[Path], None], rig: Rig, _: int
) -> AbstractContextManager[None]:
    return planted(rig, find(rig), make)


def _put_sized(
    find: _Find, make: Callable[[int, Path], None], rig: Rig, size: int
) -> AbstractContextManager[None]:
    return planted(rig, find(rig), partial(make, size))


def _plain(number: str, place: str, find: _Find, *makers: Callable[[Path], None]) -> list[Plant]:
    return [Plant(number, place, make.__name__, partial(_put, find, make)) for make in makers]


def _link(number: str, place: str, find: _Find) -> Plant:
    return Plant(number, place, "link", lambda rig, _: file_attacks.linked(rig, find(rig)))


def _sized(number: str, place: str, find: _Find) -> list[Plant]:
    return [
        Plant(number, place, name, partial(_put_sized, find, make), small, full)
        for name, make, small, full in (
            ("JSON {} deep", file_attacks.nested, 100_000, 1_000_000),
            ("{} MiB", file_attacks.large, 64, 300),
        )
    ]


_publisher = partial(lock, name="publisher")
_sockets = partial(lock, name="sockets")
_trash = partial(record, name=".trash")
_unfinished = partial(cdi_file, prefix=".")

PLANTS: Final = (
    _link("A5", "serialize.lock", lock),
    *_plain("A5", "serialize.lock", lock, fifo, folder),
    _link("A5", "publisher.lock", _publisher),
    *_plain("A5", "publisher.lock", _publisher, fifo, folder),
    _link("A5", "sockets.lock", _sockets),
    *_plain("A5", "sockets.lock", _sockets, fifo, folder),
    *_sized("A6", "claims/x.json", record),
    _link("A6", "claims/x.json", record),
    *_plain("A6", "claims/x.json", record, fifo, folder),
    *_plain("A6", "claims/.trash", _trash, folder),
    Plant("A6", "claims", "{} empty records", file_attacks.many_records, 200, 10_000),
    *_plain("A6", "CDI file", cdi_file, fifo, folder),
    *_plain("A6", "unfinished CDI file", _unfinished, fifo, folder),
    *_sized("", "faults.json", fault_memory),
    *_plain("", "faults.json", fault_memory, fifo, folder),
)

SPOILS: Final[Sequence[Callable[[Rig], AbstractContextManager[None]]]] = (
    file_attacks.cdi_file_given_away,
    file_attacks.records_given_away,
    file_attacks.folder_given_away,
    file_attacks.cdi_file_lost,
)
"""Attacks on the files of a claim that is held over a restart."""


@asynccontextmanager
async def as_async(context: AbstractContextManager[None]) -> AsyncIterator[None]:
    """The same for `async with`."""
    with context:
        yield


@asynccontextmanager
async def _held(
    spoil: Callable[[Rig], AbstractContextManager[None]], rig: Rig, _: int
) -> AsyncIterator[None]:
    async with rig.registered() as kubelet:
        await kubelet.prepare([rig.claim("held", "npu-1")])
    with spoil(rig):
        yield


def _running(plant: Plant) -> Attack:
    return Attack(
        plant.number,
        f"{plant.place}: {plant.name}, running",
        lambda node, size: as_async(plant.put(node.rig, size)),
        full=(plant.full,),
        seconds=2,
    )


def _starting(plant: Plant) -> Attack:
    return Attack(
        plant.number,
        f"{plant.place}: {plant.name}, at the start",
        _nothing,
        full=(plant.full,),
        seconds=2,
        before=lambda rig, size: as_async(plant.put(rig, size)),
    )


def _restarting(spoil: Callable[[Rig], AbstractContextManager[None]]) -> Attack:
    name = spoil.__name__.replace("_", " ")
    return Attack("A9", f"{name}, at a restart", _nothing, seconds=2, before=partial(_held, spoil))


FILES: Final = (
    *map(_running, PLANTS),
    Attack(
        "A6",
        "claims/ removed, running",
        lambda node, _: as_async(file_attacks.no_records_folder(node.rig)),
        seconds=2,
    ),
    *map(_starting, PLANTS),
    *map(_restarting, SPOILS),
)

ATTACKS: Final = (NONE, *HTTP, END, *RPC, MANY_CALLERS, *API, SLOW_WATCH, *FILES)
