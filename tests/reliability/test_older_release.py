"""A release that lets two instances write, by its locks and sockets, before and after an owner."""

from __future__ import annotations

import fcntl
import os

import pytest
from trio.testing import wait_all_tasks_blocked

from dev.rig.agent import running_agent
from dev.rig.parts import Rig
from dev.rig.waiting import until
from trio_npu_dra.kit.grpc import listen_unix
from trio_npu_dra.kit.grpc.sockets import Listener
from trio_npu_dra.lab.standins.kubelet import open_kubelet

OLD, NEW = "uid-old", "uid-new"
LIFE = "publisher.lock"
CHANGES = ("serialize.lock", "faults.lock", "share-flags.lock")
STEP = "steps/uid-a.lock"


class Older:
    """An instance of the older release, as far as others see it."""

    def __init__(self, rig: Rig) -> None:
        self.folder = rig.settings.plugin_directory
        self.endpoints = rig.endpoints(OLD)
        (self.folder / "steps").mkdir(parents=True, exist_ok=True)

    def listen(self) -> list[Listener]:
        """Make its sockets, as it does before it has its lock for life."""
        paths = (self.endpoints.control, self.endpoints.service, self.endpoints.registration)
        return [listen_unix(path) for path in paths]

    def try_lock(self, name: str) -> int | None:
        """The descriptor of a lock file that it has locked; None if another process has."""
        descriptor = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    @property
    def free(self) -> set[str]:
        """The locks that it could have."""
        found = {name: self.try_lock(name) for name in (LIFE, *CHANGES)}
        for descriptor in filter(None, found.values()):
            os.close(descriptor)
        return {name for name, descriptor in found.items() if descriptor is not None}


@pytest.mark.parametrize("name", [LIFE, *CHANGES, STEP])
async def test_the_owner_waits_for_an_older_release(rig: Rig, name: str) -> None:
    """For its end, for its turn at files, and for what it does to hardware outside of a turn."""
    older, registration = Older(rig), rig.endpoints(NEW).registration
    (older.folder / LIFE).write_text(str(older.endpoints.service))  # by an owner that was killed
    descriptor = older.try_lock(name)
    assert descriptor is not None
    async with running_agent(rig, pod_uid=NEW) as new:
        await new.listening(rig.endpoints(NEW).control)
        await until(lambda: "waiting for the instance" in new.log.read_text())
        await wait_all_tasks_blocked(0.2)
        assert not registration.exists()
        os.close(descriptor)
        await new.listening(registration)
        assert older.free == set()
        assert not (older.folder / STEP).exists()


async def test_the_owner_ends_for_an_older_release(rig: Rig) -> None:
    """That has no turn before, finds then that the records were written, and keeps its sockets."""
    older, claim = Older(rig), rig.claim("a", "npu-0")
    async with running_agent(rig, pod_uid=NEW) as owner:
        await owner.listening(rig.endpoints(NEW).registration)
        marks = [(older.folder / "serialize.lock").read_bytes()]
        async with open_kubelet(rig.endpoints(NEW).registration) as kubelet:
            assert (await kubelet.prepare([claim]))[claim.uid].error == ""
        assert older.free == set()
        listeners = older.listen()
        assert await owner.ended() == 0
        assert "an older release of the driver has started" in owner.log.read_text()
        assert older.free == {LIFE, *CHANGES}
        marks.append((older.folder / "serialize.lock").read_bytes())
        assert marks[0] != marks[1]
        assert all(one.path is not None and one.path.exists() for one in listeners)
        assert len(rig.cdi_files) == len(rig.records) == 1
    for one in listeners:
        one.socket.close()
