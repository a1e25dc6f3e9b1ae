"""Each way to die that the matrix tries: how it is come to, and what it leaves behind."""

import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.agent import Agent
from tests.rig import Rig
from tests.waiting import listens, until
from trio_npu_dra._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.crashpoints import Point
from trio_npu_dra.kube.objects import DeviceAttribute, ResourceSlice
from trio_npu_dra.rpc import RpcError
from trio_npu_dra.standins.api_state import ApiState, Wire
from trio_npu_dra.standins.kubelet import Kubelet, open_kubelet


@dataclass(kw_only=True)
class DeadlyApi(ApiState):
    """An API server whose client dies between a write and its answer.

    Attributes:
        deadly: The verb; empty: none.
        victim: The client's process.
    """

    deadly: str = ""
    victim: int = 0

    def create(self, plural: str, wire: Wire, *, dry_run: bool = False) -> Wire:
        """Store, then kill."""
        stored = super().create(plural, wire, dry_run=dry_run)
        return stored if dry_run else self._killing("create", stored)

    def update(self, plural: str, wire: Wire) -> Wire:
        """Replace, then kill."""
        return self._killing("update", super().update(plural, wire))

    def delete(self, plural: str, namespace: str, name: str, preconditions: Wire) -> Wire:
        """Remove, then kill."""
        return self._killing("delete", super().delete(plural, namespace, name, preconditions))

    def _killing(self, verb: str, answer: Wire) -> Wire:
        if verb == self.deadly:
            os.kill(self.victim, signal.SIGKILL)
        return answer


@dataclass
class Scene:
    """A node with one claim prepared and its slice published, and an agent that is to die.

    Attributes:
        kept: Prepared before; holds npu-0.
        new: Allocated npu-1, not prepared yet.
        answered: Claims that the kubelet may count on, by UID.
    """

    rig: Rig
    api: DeadlyApi
    kept: Claim
    new: Claim
    answered: set[str] = field(default_factory=set)

    def name(self, uid: str) -> str:
        """The claim's name, for verdicts that read well."""
        return {self.kept.uid: "kept", self.new.uid: "new"}.get(uid, uid)

    async def prepare(self, kubelet: Kubelet, claims: Sequence[Claim]) -> None:
        """Prepare as the kubelet does; an answer without an error is what counts."""
        answers = await kubelet.prepare(claims)
        self.answered |= {uid for uid, answer in answers.items() if not answer.error}
        assert not any(answer.error for answer in answers.values()), answers

    async def unprepare(self, kubelet: Kubelet, claims: Sequence[Claim]) -> None:
        """From this call on nobody counts on the claims."""
        self.answered -= {claim.uid for claim in claims}
        errors = await kubelet.unprepare(claims)
        assert not any(errors.values()), errors


Act = Callable[[Scene, Agent], Awaitable[None]]


async def idle(scene: Scene, agent: Agent) -> None:
    """It dies without anybody's call."""
    del scene
    await agent.killed()


async def register(scene: Scene, agent: Agent) -> None:
    """It dies while the kubelet registers it, or then publishes."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stay_registered, scene.rig.registration)
        await agent.killed()
        nursery.cancel_scope.cancel()


async def _stay_registered(registration: Path) -> None:
    await until(lambda: listens(registration))
    async with open_kubelet(registration):
        await trio.sleep_forever()


async def prepare(scene: Scene, agent: Agent) -> None:
    """It dies in the kubelet's call."""
    await agent.listening(scene.rig.registration)
    async with open_kubelet(scene.rig.registration) as kubelet:
        with suppress(RpcError):
            await scene.prepare(kubelet, [scene.new])
        await agent.killed()


async def unprepare(scene: Scene, agent: Agent) -> None:
    """It dies in the kubelet's call."""
    await agent.listening(scene.rig.registration)
    async with open_kubelet(scene.rig.registration) as kubelet:
        with suppress(RpcError):
            await scene.unprepare(kubelet, [scene.kept])
        await agent.killed()


async def stop(scene: Scene, agent: Agent) -> None:
    """It dies on its way out, with a prepare in flight that waits for the API server."""
    await _stop(scene, agent, is_drained=False)


async def stop_drained(scene: Scene, agent: Agent) -> None:
    """The same, and the call in flight gets its answer first."""
    await _stop(scene, agent, is_drained=True)


async def _stop(scene: Scene, agent: Agent, *, is_drained: bool) -> None:
    await agent.listening(scene.rig.registration)
    async with open_kubelet(scene.rig.registration) as kubelet, trio.open_nursery() as nursery:
        scene.api.fail_next(1000, status=503, verb="get")
        nursery.start_soon(_prepare_if_possible, scene, kubelet)
        await until(lambda: scene.api.asked("get", "resourceclaims") > 0)
        agent.process.terminate()
        if is_drained:
            await until(lambda: not scene.rig.registration.exists())
            scene.api.heal()
        await agent.killed()


async def _prepare_if_possible(scene: Scene, kubelet: Kubelet) -> None:
    with suppress(RpcError):
        await scene.prepare(kubelet, [scene.new])


# --- what the API server has before --------------------------------------------------------------


def nothing_published(scene: Scene) -> None:
    """A node's first start."""
    for item in scene.api.all(ResourceSlice):
        scene.api.remove(ResourceSlice, item.metadata.name)


def outdated(scene: Scene) -> None:
    """An earlier run saw other facts, and left a slice too many."""
    (item,) = scene.api.all(ResourceSlice)
    first, *others = item.spec.devices or ()
    old = first.model_copy(update={"attributes": {"type": DeviceAttribute(string="old")}})
    spec = item.spec.model_copy(update={"devices": (old, *others)})
    scene.api.put(item.model_copy(update={"spec": spec}))
    stray = item.metadata.model_copy(update={"name": "stray"})
    scene.api.add(ResourceSlice(metadata=stray, spec=spec))


def without_cdi_files(scene: Scene) -> None:
    """The CDI folder was emptied."""
    for path in scene.rig.cdi_files:
        path.unlink()


def as_it_was(scene: Scene) -> None:
    """An ordinary restart."""
    del scene


# --- the matrix ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Crash:
    """One way to die.

    Attributes:
        at: The crash point and the visit; in words where something else kills.
        before: What the node is like before the agent starts.
        act: What is done until it is dead.
        records: Claims that have a record then.
        cdi: Claims that have a CDI file then.
        unfinished: Temporary files then.
        sockets: Sockets for the kubelet then; `None` where publishing does not wait for them.
        written: Slice writes that the API server has accepted of it.
        then: Slice writes of the next start.
    """

    at: str
    before: Callable[[Scene], None] = as_it_was
    act: Act = idle
    records: frozenset[str] = frozenset({"kept"})
    cdi: frozenset[str] = frozenset({"kept"})
    unfinished: int = 0
    sockets: int | None = 0
    written: tuple[str, ...] = ()
    then: tuple[str, ...] = ()

    @property
    def point(self) -> Point | None:
        """The point, if one of ours kills."""
        name = self.at.partition(":")[0]
        return Point(name) if name in set(Point) else None


NONE, KEPT, BOTH = frozenset[str](), frozenset({"kept"}), frozenset({"kept", "new"})

CRASHES = (
    Crash(at=Point.START_SETTINGS_READ, before=without_cdi_files, cdi=NONE),
    Crash(at=Point.START_LIBRARY_LOADED, before=without_cdi_files, cdi=NONE),
    Crash(at=Point.START_RECORDS_READ, before=without_cdi_files, cdi=NONE),
    Crash(at=Point.START_FILES_REPAIRED, before=without_cdi_files),
    Crash(at=Point.START_SERVICE_LISTENING, before=without_cdi_files, sockets=1),
    Crash(at=Point.START_REGISTRATION_LISTENING, before=without_cdi_files, sockets=2),
    Crash(at=Point.START_REGISTERED, act=register, sockets=2),
    Crash(at=Point.PREPARE_CLAIMS_READ, act=prepare, sockets=2),
    Crash(at=Point.PREPARE_LOCKED, act=prepare, sockets=2),
    Crash(at=Point.PREPARE_RECORD_WRITTEN, act=prepare, sockets=2, unfinished=1),
    Crash(at=Point.PREPARE_RECORD_RENAMED, act=prepare, sockets=2, records=BOTH),
    Crash(at=Point.PREPARE_UNLOCKED, act=prepare, sockets=2, records=BOTH, cdi=BOTH),
    Crash(at=Point.CDI_WRITTEN, act=prepare, sockets=2, records=BOTH, unfinished=1),
    Crash(at=Point.CDI_RENAMED, act=prepare, sockets=2, records=BOTH, cdi=BOTH),
    Crash(at=Point.PREPARE_ANSWER_DUE, act=prepare, sockets=2, records=BOTH, cdi=BOTH),
    Crash(at=f"{Point.CDI_WRITTEN}:1", before=without_cdi_files, cdi=NONE, unfinished=1),
    Crash(at=f"{Point.CDI_RENAMED}:1", before=without_cdi_files),
    Crash(at=Point.UNPREPARE_LOCKED, act=unprepare, sockets=2),
    Crash(at=Point.UNPREPARE_CDI_REMOVED, act=unprepare, sockets=2, cdi=NONE),
    Crash(at=Point.UNPREPARE_RECORD_REMOVED, act=unprepare, sockets=2, records=NONE, cdi=NONE),
    Crash(at=Point.UNPREPARE_UNLOCKED, act=unprepare, sockets=2, records=NONE, cdi=NONE),
    Crash(at=Point.UNPREPARE_ANSWER_DUE, act=unprepare, sockets=2, records=NONE, cdi=NONE),
    Crash(
        at=Point.PUBLISH_DELETE_DUE,
        before=outdated,
        act=register,
        sockets=None,
        then=("delete", "update"),
    ),
    Crash(
        at="delete accepted, no answer",
        before=outdated,
        act=register,
        sockets=None,
        written=("delete",),
        then=("update",),
    ),
    Crash(
        at=Point.PUBLISH_DELETED,
        before=outdated,
        act=register,
        sockets=None,
        written=("delete",),
        then=("update",),
    ),
    Crash(
        at=Point.PUBLISH_UPDATE_DUE,
        before=outdated,
        act=register,
        sockets=None,
        written=("delete",),
        then=("update",),
    ),
    Crash(
        at="update accepted, no answer",
        before=outdated,
        act=register,
        sockets=None,
        written=("delete", "update"),
    ),
    Crash(
        at=Point.PUBLISH_UPDATED,
        before=outdated,
        act=register,
        sockets=None,
        written=("delete", "update"),
    ),
    Crash(
        at=Point.PUBLISH_CREATE_DUE,
        before=nothing_published,
        act=register,
        sockets=None,
        then=("create",),
    ),
    Crash(
        at="create accepted, no answer",
        before=nothing_published,
        act=register,
        sockets=None,
        written=("create",),
    ),
    Crash(
        at=Point.PUBLISH_CREATED,
        before=nothing_published,
        act=register,
        sockets=None,
        written=("create",),
    ),
    Crash(at=Point.STOP_ASKED, act=stop, sockets=2),
    Crash(at=f"{Point.STOP_SOCKET_REMOVED}:1", act=stop, sockets=1),
    Crash(at=f"{Point.STOP_SOCKET_REMOVED}:2", act=stop),
    Crash(at=Point.STOP_CALLS_DRAINED, act=stop_drained, records=BOTH, cdi=BOTH),
)


def unfinished_files(folder: Path) -> list[Path]:
    """Temporary files below *folder*."""
    return [path for path in folder.rglob(".*") if path.is_file()]


def sockets(folder: Path) -> list[Path]:
    """Sockets below *folder* that the kubelet would call."""
    others = {"api.sock", "control.sock"}
    return [path for path in folder.rglob("*.sock") if path.name not in others]
