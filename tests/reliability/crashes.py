"""A node on which the daemon dies, what it is doing then, and what is there before."""

import copy
import json
import re
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree, rmtree

import trio

from dev.rig.agent import Agent
from dev.rig.parts import Rig
from dev.rig.waiting import listens, until
from tests.reliability.deaths import Reaper
from trio_npu_dra.kit.api.objects import DeviceAttribute, ResourceSlice
from trio_npu_dra.kit.grpc import open_channel
from trio_npu_dra.kit.grpc._generated.k8s.io.kubelet.pkg.apis.dra.v1 import Claim
from trio_npu_dra.kit.grpc._generated.pluginregistration import PluginInfo
from trio_npu_dra.lab.simulator import SimulatedBoard, create_board
from trio_npu_dra.lab.standins.api_state import ApiState
from trio_npu_dra.lab.standins.kubelet import CALL_SECONDS, Kubelet, open_kubelet

_CHANCE = re.compile(rb"\.[0-9a-f]{8}\b|\b[0-9a-f]{16}\b|\b\d+\.\d+\b")
"""Endings of temporary files, marks of the lock file, moments."""

FOLDERS = ("cdi", "plugins", "registry")
"""Where the daemon's files and sockets are, below the folder of the node."""


@dataclass
class Scene:
    """A node with one claim prepared and its slice published.

    Attributes:
        kept: Prepared before; holds npu-0.
        new: Allocated npu-1, not prepared yet.
        is_shared: Whether both have a share of their NPU instead of all of it.
        answered: Claims that the kubelet may count on, by UID.
        writes: To slices, that a start has to make.
        simulator: The simulated library, if each node has a board of its own.
    """

    rig: Rig
    kept: Claim
    new: Claim
    is_shared: bool = False
    answered: set[str] = field(default_factory=set)
    writes: tuple[str, ...] = ()
    simulator: Path | None = None

    @property
    def api(self) -> ApiState:
        """The API server."""
        return self.rig.api

    @property
    def names(self) -> dict[str, str]:
        """What to call the claims, by UID."""
        return {self.kept.uid: "KEPT", self.new.uid: "NEW"}

    @property
    def folders(self) -> list[Path]:
        """Where the daemon's files and sockets are."""
        return [self.rig.folder / name for name in FOLDERS]

    @property
    def share(self) -> str | None:
        """The share that each claim has of its NPU."""
        return "share-1" if self.is_shared else None

    @property
    def changing(self) -> list[Path]:
        """Where a change makes a difference: chips are shared, and cut, below the board's root."""
        is_board = self.is_shared or self.simulator is not None
        return [*self.folders, self.rig.board.root] if is_board else self.folders

    @property
    def chips(self) -> range:
        """The chips of the board."""
        return range(len(self.rig.board.profile.devices))

    @property
    def shared_chips(self) -> set[int]:
        """The chips that several containers may use."""
        with self.rig.board.control() as control:
            return {chip for chip in self.chips if control.read(chip, "share_enable")}

    @property
    def vnpus(self) -> set[int]:
        """All partitions that the board's NPUs are cut into."""
        with self.rig.board.control() as control:
            return {vnpu.id for chip in self.chips for vnpu in control.vnpus(chip)}

    @property
    def files(self) -> set[str]:
        """What is in them but folders, relative to the node's folder."""
        return {
            str(path.relative_to(self.rig.folder))
            for folder in self.folders
            for path in folder.rglob("*")
            if not path.is_dir()
        }

    @property
    def state(self) -> tuple[object, ...]:
        """All that the next daemon finds, without what is by chance."""
        return (
            frozenset(map(self._described, self.files)),
            tuple(
                (item.metadata.name.rpartition("-")[0], item.spec.model_dump_json())
                for item in self.api.all(ResourceSlice)
            ),
            self.slice_writes,
            frozenset(self.answered),
            frozenset(self.shared_chips),
            frozenset(self.vnpus),
        )

    def _described(self, name: str) -> tuple[str, int, bytes]:
        """A file's name, mode and content; random parts and moments masked."""
        path = self.rig.folder / name
        mode = path.lstat().st_mode
        content = path.read_bytes() if stat.S_ISREG(mode) else b""
        return _CHANCE.sub(b"*", name.encode()).decode(), mode, _CHANCE.sub(b"*", content)

    @property
    def is_settled(self) -> bool:
        """Whether no claim is on its way, and no share flag or lock is left of one that is gone."""
        try:
            records = [json.loads(path.read_bytes()) for path in self.rig.records]
        except FileNotFoundError:  # the daemon has just removed one
            return False
        locks = (self.rig.folder / "plugins/npu.huawei.com/steps").glob("*.lock")
        if not {path.stem for path in locks} <= {path.stem for path in self.rig.records}:
            return False
        flags = self.rig.folder / "plugins/npu.huawei.com/share-flags.json"
        noted = json.loads(flags.read_bytes())["chips"] if flags.exists() else []
        is_left = self.is_shared and len(noted) > len(records)
        return not is_left and all(record["state"] == "ready" for record in records)

    @property
    def slice_writes(self) -> tuple[str, ...]:
        """What the API server was asked to do with slices, dry runs aside."""
        return tuple(
            request.verb
            for request in self.api.requests
            if request.verb in {"create", "update", "delete"}
            and "/resourceslices" in request.path
            and "dryRun" not in request.query
        )

    def like(self, folder: Path) -> "Scene":
        """The same node once more, in *folder*, as much as what outlives a process goes."""
        api = ApiState(_objects=copy.deepcopy(self.api._objects), _version=self.api._version)
        # Looks at chips, but for the first, have nothing to do with deaths and cost time.
        rig = replace(
            self.rig, folder=folder, board=self._board(folder), api=api, health_poll_interval=60.0
        )
        rig.lay_out()
        for name in FOLDERS:
            if (self.rig.folder / name).exists():
                copytree(
                    self.rig.folder / name, folder / name, copy_function=_copy, dirs_exist_ok=True
                )
        if self.is_shared:
            with rig.board.control() as control:
                for chip in self.chips:
                    control.set_share(chip, enabled=chip == 0 and self.kept.uid in self.answered)
        return replace(self, rig=rig, answered=set(self.answered))

    def _board(self, folder: Path) -> SimulatedBoard:
        """The same board, or one that is cut in the same way."""
        if self.simulator is None:
            return self.rig.board
        board = create_board(self.rig.board.profile, folder / "host", prebuilt=self.simulator)
        with self.rig.board.control() as ours, board.control() as its:
            for chip in self.chips:
                for vnpu in ours.vnpus(chip):
                    its.create_vnpu(chip, vnpu.template, vnpu.id)
        return board

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


def _copy(source: str, target: str) -> None:
    """Copy a file with its mode, or make a socket on which nobody listens."""
    mode = Path(source).lstat().st_mode
    if stat.S_ISSOCK(mode):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(target)
    else:
        Path(target).write_bytes(Path(source).read_bytes())
    Path(target).chmod(stat.S_IMODE(mode))


# --- what the daemon does when it dies -----------------------------------------------------------

Act = Callable[[Scene, Agent, Reaper], Awaitable[None]]
"""Has an agent do something to its end; tells the reaper when that begins."""


async def start(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """From its first system call until it is registered and has published."""
    del agent
    reaper.begin()
    registration = scene.rig.registration
    await until(lambda: listens(registration))
    async with open_kubelet(registration):
        await published(scene)
        await until(lambda: reaper.points.all_answered and scene.is_settled)


async def published(scene: Scene, *, since: int = 0) -> None:
    """Wait until a daemon has looked at the slices, and has written what it has to.

    Args:
        scene: Its node.
        since: How many lists of slices others have asked for before.
    """
    await until(lambda: scene.api.asked("list", "resourceslices") > since)
    await until(lambda: len(scene.slice_writes) >= len(scene.writes))


async def prepare(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """A call of the kubelet, from end to end."""
    del agent
    async with _connected(scene) as kubelet:
        reaper.begin()
        await scene.prepare(kubelet, [scene.new])


async def unprepare(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """A call of the kubelet, from end to end."""
    del agent
    async with _connected(scene) as kubelet:
        if scene.is_shared or scene.simulator:  # steps are undone once the chips are known
            await kubelet.prepare([scene.rig.claim("waits-for-chips", "npu-99")])
        reaper.begin()
        await scene.unprepare(kubelet, [scene.kept])


async def unprepare_without_chip(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """The same while the claim's chip is away; it comes back afterwards with all partitions."""
    del agent
    async with _connected(scene) as kubelet:
        await kubelet.prepare([scene.rig.claim("waits-for-chips", "npu-99")])
        with scene.rig.board.control() as control:
            control.set_gone(0)
            try:
                reaper.begin()
                await scene.unprepare(kubelet, [scene.kept])
            finally:
                control.restore(0)


async def stop(scene: Scene, agent: Agent, reaper: Reaper) -> None:
    """In order, with a prepare in flight, which waits for the API server and then is answered."""
    async with _connected(scene) as kubelet, trio.open_nursery() as nursery:
        scene.api.fail_next(1000, status=503, verb="get")
        nursery.start_soon(scene.prepare, kubelet, [scene.new])
        await until(lambda: scene.api.asked("get", "resourceclaims") > 0)
        reaper.begin()
        agent.process.terminate()
        registration = scene.rig.registration
        await until(lambda: not registration.exists())
        scene.api.heal()
    await until(lambda: agent.process.exitcode is not None)


@asynccontextmanager
async def _connected(scene: Scene) -> AsyncIterator[Kubelet]:
    """A kubelet that has called before: over its connection nothing is sent but answers."""
    endpoint, registration = scene.rig.endpoints().service, scene.rig.registration
    await until(lambda: listens(registration))
    async with open_channel(endpoint) as channel:
        kubelet = Kubelet(channel, PluginInfo(), "v1.DRAPlugin", CALL_SECONDS)
        await kubelet.prepare([])
        yield kubelet


# --- what is there before ------------------------------------------------------------------------


def whole_npus(rig: Rig) -> Scene:
    """A node whose claims have a whole NPU each."""
    return Scene(rig, rig.claim("kept", "npu-0"), rig.claim("new", "npu-1"))


def nothing_yet(scene: Scene) -> None:
    """A node's first start."""
    for folder in scene.folders:
        rmtree(folder, ignore_errors=True)
    for name in ("plugins", "registry"):  # the kubelet's
        (scene.rig.folder / name).mkdir()
    for item in scene.api.all(ResourceSlice):
        scene.api.remove(ResourceSlice, item.metadata.name)
    scene.answered.clear()
    scene.writes = ("create",)


def outdated(scene: Scene) -> None:
    """An earlier run saw other facts, and left a slice too many."""
    (item,) = scene.api.all(ResourceSlice)
    first, *others = item.spec.devices or ()
    old = first.model_copy(update={"attributes": {"type": DeviceAttribute(string="old")}})
    spec = item.spec.model_copy(update={"devices": (old, *others)})
    scene.api.put(item.model_copy(update={"spec": spec}))
    stray = item.metadata.model_copy(update={"name": "stray"})
    scene.api.add(ResourceSlice(metadata=stray, spec=spec))
    scene.writes = ("delete", "update")
