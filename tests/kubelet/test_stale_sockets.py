"""Whose sockets are removed: those of the dead of this driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests import foreign
from trio_npu_dra.kubelet.stale_sockets import remove_stale_sockets, starting
from trio_npu_dra.rpc import registration_socket, service_socket
from trio_npu_dra.rpc.sockets import Listener, listen_unix

DRIVER = "npu.example.com"
OURS = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-000000000002"
LONG_DRIVER = "d" * 30
LONG_REGISTRY = "r" * 40
"""With both, registration sockets are named by digests only."""


class Instance:
    """The two sockets of an instance."""

    def __init__(
        self, folder: Path, uid: str | None, driver: str = DRIVER, registry: str = "registry"
    ) -> None:
        (folder / driver).mkdir(exist_ok=True)
        (folder / registry).mkdir(exist_ok=True)
        self.driver = driver
        self.service = service_socket(folder, driver, uid)
        self.registration = registration_socket(folder / registry, driver, uid)
        self.listeners: list[Listener] = []

    def listen(self) -> Instance:
        """Start."""
        self.listeners = [listen_unix(path) for path in (self.service, self.registration)]
        return self

    def die(self) -> Instance:
        """End as by SIGKILL: nobody listens, and the files stay."""
        while self.listeners:
            self.listeners.pop().socket.close()
        return self

    @property
    def files(self) -> list[bool]:
        """Which of the two are there."""
        return [path.exists() for path in (self.service, self.registration)]


async def look(ours: Instance) -> None:
    """What our instance does at its start."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remove_stale_sockets, ours.driver, ours.service, ours.registration)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("uid", [OTHER, None], ids=["with a UID", "without one"])
@pytest.mark.parametrize("listening", [True, False])
async def test_sockets_of_a_killed_instance_go(
    folder: Path, uid: str | None, *, listening: bool
) -> None:
    """Both of them; ours stay, listening or not."""
    ours = Instance(folder, OURS).listen()
    if not listening:
        ours.die()
    dead = Instance(folder, uid).listen().die()

    await look(ours)

    assert dead.files == [False, False]
    assert ours.files == [True, True]
    ours.die()


async def test_names_made_of_digests_are_known_too(folder: Path) -> None:
    """A dead instance is found by its service socket, whatever its other name looks like."""
    ours, dead = (Instance(folder, uid, LONG_DRIVER, LONG_REGISTRY) for uid in (OURS, OTHER))
    assert LONG_DRIVER not in dead.listen().registration.name
    dead.die()

    await look(ours)

    assert dead.files == [False, False]


async def test_sockets_of_a_living_instance_stay(folder: Path) -> None:
    """In a rolling update both are at work."""
    living = Instance(folder, OTHER).listen()

    await look(Instance(folder, OURS))

    assert living.files == [True, True]
    living.die()


async def test_a_registration_that_somebody_listens_on_stays(folder: Path) -> None:
    """Whoever it is: an instance that stops closes its service last."""
    stopping = Instance(folder, OTHER).listen()
    stopping.listeners[0].socket.close()

    await look(Instance(folder, OURS))

    assert stopping.files == [False, True]
    stopping.die()


def another_drivers(folder: Path) -> Instance:
    """Sockets of another driver, dead."""
    return Instance(folder, OTHER, "gpu.example.com").listen().die()


def registration_alone(folder: Path) -> Instance:
    """A registration socket of ours, dead, with no service socket that tells whose it is."""
    dead = Instance(folder, OTHER).listen().die()
    dead.service.unlink()
    return dead


@pytest.mark.parametrize("leave", [another_drivers, registration_alone])
async def test_what_is_not_ours_for_certain_stays(
    folder: Path, leave: Callable[[Path], Instance]
) -> None:
    """Dead or not."""
    left = leave(folder)
    before = left.files

    await look(Instance(folder, OURS))

    assert left.files == before


async def test_an_instance_that_is_starting_is_left_alone(folder: Path) -> None:
    """Between bind and listen it refuses like a dead one; nobody looks then."""
    other = Instance(folder, OTHER)
    async with starting(other.service):
        bound = Instance(folder, OTHER).listen().die()
        await look(Instance(folder, OURS))
        assert bound.files == [True, True]


async def test_a_socket_whose_path_is_too_long_was_never_there(folder: Path) -> None:
    """As the other name of a dead instance, where the registrar's folder has a long one."""
    ours = Instance(folder, None, registry="r" * (107 - len(f"{folder}//{DRIVER}-reg.sock")))
    dead = Instance(folder, OTHER, registry="registry").listen().die()

    await look(ours)

    assert dead.files == [False, True]


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
async def test_what_is_no_socket_is_not_swept(folder: Path, kind: str) -> None:
    """Connecting to it is refused as well."""
    ours = Instance(folder, OURS)
    dead = Instance(folder, OTHER).listen().die()
    dead.registration.unlink()
    foreign.put(kind, dead.registration)

    await look(ours)

    assert not dead.service.exists()
    assert foreign.is_there(dead.registration)


async def test_an_instance_killed_later_is_found_within_a_minute(
    folder: Path, autojump_clock: MockClock
) -> None:
    """As when the old one does not end in its pod's grace period."""
    del autojump_clock
    ours, other = Instance(folder, OURS), Instance(folder, OTHER).listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(remove_stale_sockets, DRIVER, ours.service, ours.registration)
        await trio.sleep(30)
        assert other.files == [True, True]
        other.die()
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert other.files == [False, False]


async def test_a_look_that_fails_is_not_the_last(
    folder: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Another instance that hangs at its start keeps the lock for longer than we wait."""
    del autojump_clock
    ours, dead = Instance(folder, OURS), Instance(folder, OTHER).listen().die()
    async with trio.open_nursery() as nursery:
        async with starting(dead.service):
            nursery.start_soon(remove_stale_sockets, DRIVER, ours.service, ours.registration)
            await trio.sleep(30)
        assert dead.files == [True, True]
        assert "cannot be removed: another process has held" in caplog.text
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert dead.files == [False, False]
