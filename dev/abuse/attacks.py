"""All attacks, with their sizes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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

from dev.abuse import api_attacks, file_attacks, http_attacks
from dev.abuse.file_attacks import cdi_file, fault_memory, given_away, planted, record, state
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
        seconds: How long the attack lasts there at least.
        before: What it puts in place before the daemon starts.
    """

    number: str
    name: str
    begin: Begin
    small: int = 0
    full: Sequence[int] = (0,)
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

API: Final = (
    Attack("A7", "a claim with {} MiB of wrong types", api_attacks.wrong_types, 1, (7,)),
    Attack("A7", "a watch of {} MiB", api_attacks.endless_watch, 8, (200,)),
)


SLOW_WATCH: Final = Attack(
    "A7", "a watch of a byte a second", api_attacks.slow_watch, full=(40,), seconds=40
)


_Put: TypeAlias = Callable[[Rig, Path, int], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Plant:
    """Something foreign in the driver's folders, described as an attack is.

    Attributes:
        place: Its place; two with the same place cannot be there at once.
        put: Puts it there, with a size, and removes it at the end.
    """

    number: str
    place: str
    name: str
    put: Callable[[Rig, int], AbstractContextManager[None]]
    small: int = 0
    full: int = 0


_KINDS: Final[Mapping[str, tuple[_Put, int, int]]] = {
    "JSON {} deep": (partial(planted, file_attacks.nested), 100_000, 1_000_000),
    "{} MiB": (partial(planted, file_attacks.large), 64, 300),
    "link": (file_attacks.linked, 0, 0),
    "fifo": (partial(planted, file_attacks.fifo), 0, 0),
    "folder": (partial(planted, file_attacks.folder), 0, 0),
}
"""By name: what puts a thing in the place of a file, and its size in tests and in the table."""


def _plants(number: str, place: str, find: Callable[[Rig], Path], *kinds: str) -> Iterator[Plant]:
    """Things in the place of a file of the driver."""

    def put_at(put: _Put) -> Callable[[Rig, int], AbstractContextManager[None]]:
        return lambda rig, size: put(rig, find(rig), size)

    for kind in kinds:
        put, small, full = _KINDS[kind]
        yield Plant(number, place, kind, put_at(put), small, full)


PLANTS: Final = (
    *_plants("A6", "claims/x.json", record, *_KINDS),
    *_plants("A6", "claims/.trash", partial(record, name=".trash"), "folder"),
    Plant("A6", "claims", "{} empty records", file_attacks.many_records, 200, 10_000),
    *_plants("A6", "CDI file", cdi_file, "fifo", "folder"),
    *_plants("A6", "unfinished CDI file", partial(cdi_file, prefix="."), "fifo", "folder"),
    *_plants("", "faults.json", fault_memory, "JSON {} deep", "{} MiB", "fifo", "folder"),
)

SPOILS: Final[Mapping[str, Callable[[Rig], AbstractContextManager[None]]]] = {
    "cdi file given away": lambda rig: given_away(rig.cdi_files[0]),
    "records given away": lambda rig: given_away(record(rig).parent),
    "folder given away": lambda rig: given_away(state(rig)),
    "cdi file lost": file_attacks.cdi_file_lost,
}
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


FILES: Final = (
    *map(_running, PLANTS),
    Attack(
        "A6",
        "claims/ removed, running",
        lambda node, _: as_async(file_attacks.no_records_folder(node.rig)),
        seconds=2,
    ),
    *map(_starting, PLANTS),
    *(
        Attack("A9", f"{name}, at a restart", _nothing, seconds=2, before=partial(_held, spoil))
        for name, spoil in SPOILS.items()
    ),
)

ATTACKS: Final = (NONE, *HTTP, END, *API, SLOW_WATCH, *FILES)
