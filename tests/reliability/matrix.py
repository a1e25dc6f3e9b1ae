"""Deaths at all points of something that a daemon does, and what the next daemon makes of them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

from dev.rig.looking import SERVER, changed
from dev.rig.parts import NODE, Rig
from dev.rig.waiting import until
from tests.reliability.crashes import Act, Scene, published, stop
from tests.reliability.deaths import Reaper, mortal_agent
from tests.reliability.holds import given
from tests.reliability.points import Points
from trio_npu_dra.kit.api.objects import Device, Node, ObjectMeta, ResourceSlice
from trio_npu_dra.kit.grpc import RpcError
from trio_npu_dra.lab.simulator import create_board
from trio_npu_dra.lab.standins.kubelet import open_kubelet

LIMIT_SECONDS = 300.0  # ends a wait that has gone wrong; two starts on a busy machine take a minute
POINTS_LIMIT = 100
END = "the end"


@dataclass(frozen=True)
class Seen:
    """What every death begins with, and what a node without deaths has.

    Attributes:
        scene: A slice is published and a claim prepared; the daemon was stopped in order.
        files: Of a daemon that runs and has prepared nothing.
        files_of_claim: Beside them for each claim that is prepared, with `{uid}` for its UID.
        others: Devices that claims get besides, after a death.
    """

    scene: Scene
    files: frozenset[str]
    files_of_claim: frozenset[str]
    others: tuple[str, ...] = ("npu-2",)

    def of(self, uid: str) -> set[str]:
        """The files of one claim."""
        return {name.format(uid=uid) for name in self.files_of_claim}


def good_run(scene: Scene, *, others: tuple[str, ...]) -> Seen:
    """A run on a new node in which nothing dies."""
    scene.rig.api.add(Node(metadata=ObjectMeta(name=NODE)))
    scene.rig.lay_out()
    files: list[set[str]] = []

    async def run() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            async with scene.rig.served_api(), scene.rig.registered() as kubelet:
                await scene.rig.published()
                await scene.prepare(kubelet, [scene.kept])
                await scene.unprepare(kubelet, [scene.kept])
                files.append(scene.files)
                await scene.prepare(kubelet, [scene.kept])
                files.append(scene.files)

    trio.run(run)
    of_claim = {name.replace(scene.kept.uid, "{uid}") for name in files[1] - files[0]}
    return Seen(scene, frozenset(files[0]), frozenset(of_claim), others)


@contextmanager
def good_node(
    simulator: Path,
    npus: int,
    scene: Callable[[Rig], Scene],
    *,
    others: tuple[str, ...] = ("npu-2",),
    **flags: Any,
) -> Iterator[Seen]:
    """A run in which nothing dies, of a node with so many NPUs and these flags.

    The status of claims is written beside all else, so `test_crash_statuses` has deaths there.
    """
    with TemporaryDirectory(prefix="npu-") as name:
        folder = Path(name)
        board = create_board(changed(SERVER, npus), folder / "host", prebuilt=simulator)
        rig = Rig(folder, board, claim_status=False, **flags)
        yield good_run(scene(rig), others=others)


# --- all deaths ----------------------------------------------------------------------------------


async def die_everywhere(
    seen: Seen,
    scene: Scene,
    act: Act,
    *,
    but: frozenset[str] = frozenset(),
    at: Callable[[str], bool] = lambda _: True,
) -> frozenset[str]:
    """Die in *act* at each point, each time on a node like *scene*, and see the next daemon go on.

    Of deaths that leave the same, such as those before the parts of an answer, it goes on after the
    first.

    Args:
        seen: What a node without deaths has.
        scene: What is there before.
        act: What is done.
        but: Points that are left out.
        at: At which others it dies.

    Returns:
        The others.
    """
    devices = _published(seen.scene)
    tried = but
    judged: set[tuple[object, ...]] = set()
    while END not in tried:
        assert len(tried) < POINTS_LIMIT, f"points have no stable names: {sorted(tried)}"
        with TemporaryDirectory(prefix="npu-") as folder:
            node = scene.like(Path(folder))
            point = END
            try:
                with trio.fail_after(LIMIT_SECONDS):
                    async with node.rig.served_api():
                        point = await _die(node, act, partial(_spares, tried, at))
                        _judge_what_is_left(seen, node)
                        if (left := node.state) not in judged:  # else it would do the same again
                            judged.add(left)
                            await _go_on(seen, node)
                            assert _published(node) == devices
                            assert node.slice_writes == node.writes
            except Exception as error:
                error.add_note(f"after a death before: {point}")
                raise
        tried |= {point}
    return tried - but - {END}


def _spares(tried: frozenset[str], at: Callable[[str], bool], point: str) -> bool:
    return point in tried or not at(point)


async def die_once(scene: Scene, act: Act, spares: Callable[[str], bool]) -> None:
    """Die in *act* at the first point that is not spared, and leave it at that."""
    with trio.fail_after(LIMIT_SECONDS):
        async with scene.rig.served_api():
            await _die(scene, act, spares)


async def _die(scene: Scene, act: Act, spares: Callable[[str], bool]) -> str:
    """Start an agent, have it act, kill it at the first point that is not spared, or at the end."""
    reaper = Reaper(Points(scene.rig.folder, scene.changing, scene.names), spares)
    async with mortal_agent(scene.rig, reaper) as agent, trio.open_nursery() as nursery:

        async def to_the_end() -> None:
            try:
                await act(scene, agent, reaper)
            except* RpcError:
                if not reaper.died_at:
                    raise
            else:
                reaper.kill(agent, END)

        nursery.start_soon(to_the_end)
        status = await agent.ended()
        if status != 0:
            nursery.cancel_scope.cancel()
    ends_itself = act is stop and reaper.died_at == END
    assert status == (0 if ends_itself else -signal.SIGKILL), agent.log.read_text()
    scene.api.heal()
    await wait_all_tasks_blocked(0.005)  # the API server has read what was sent to it
    return reaper.died_at


def _judge_what_is_left(seen: Seen, scene: Scene) -> None:
    """A container can start with a claim's NPUs only while the claim holds them."""
    for uid in _held(scene):
        assert seen.of(uid) <= scene.files
    assert not scene.is_shared or _chips(scene, _held(scene)) <= scene.shared_chips


async def _go_on(seen: Seen, scene: Scene) -> None:
    """The next daemon: first it puts right what is left, then everything works."""
    lists = scene.api.asked("list", "resourceslices")
    async with scene.rig.daemon():
        await until(lambda: scene.is_settled)
        held = _held(scene)
        assert scene.answered <= held <= {scene.kept.uid, scene.new.uid}
        _has_files(seen, scene, held)
        async with open_kubelet(scene.rig.registration) as kubelet:
            await kubelet.health.wait_until(lambda health: len(health) >= len(scene.chips))
            others = [
                scene.rig.claim(f"of-{device}", device, share_id=scene.share)
                for device in seen.others
            ]
            everything = [scene.kept, scene.new, *others]
            await scene.prepare(kubelet, everything)
            _has_files(seen, scene, {claim.uid for claim in everything})
            assert len(set(_given(scene))) == len(_given(scene)) >= len(everything)
            assert scene.vnpus == _partitions_given(scene)
            assert scene.shared_chips == ({0, 1, 2} if scene.is_shared else set())
            await published(scene, since=lists)
            await scene.unprepare(kubelet, everything)
        _has_files(seen, scene, set())
        assert not scene.vnpus
        assert not scene.shared_chips
    assert not [name for name in scene.files if name.endswith(".sock")]


async def points_of(scene: Scene, act: Act) -> frozenset[str]:
    """The points of *act*, without a death on the way."""
    points: list[str] = []

    def spare(point: str) -> bool:
        points.append(point)
        return True

    with TemporaryDirectory(prefix="npu-") as folder:
        await die_once(scene.like(Path(folder)), act, spare)
    return frozenset(points)


def kinds(points: frozenset[str]) -> set[str]:
    """The first words."""
    return {point.split()[0] for point in points}


# --- what is there -------------------------------------------------------------------------------


def _has_files(seen: Seen, scene: Scene, held: set[str]) -> None:
    """No file is missing and none is left over, given which claims are prepared."""
    needed = {name for uid in held for name in seen.of(uid)}
    assert needed <= scene.files <= seen.files | needed


def _published(scene: Scene) -> tuple[Device, ...]:
    """The devices of all slices."""
    slices = scene.api.all(ResourceSlice)
    return tuple(device for item in slices for device in item.spec.devices or ())


def _held(scene: Scene) -> set[str]:
    """The claims with which a container can start."""
    return {path.stem.rpartition("_")[2] for path in scene.rig.cdi_files}


def _chips(scene: Scene, uids: set[str]) -> set[int]:
    """The chips of which claims have shares."""
    chips = {scene.kept.uid: 0, scene.new.uid: 1}
    return {chips[uid] for uid in uids}


def _given(scene: Scene) -> list[str]:
    """The device nodes in CDI files; one that two claims have is there twice."""
    nodes = [given(path).values() for path in scene.rig.cdi_files]
    return [node for devices in nodes for device in devices for node in device]


def _partitions_given(scene: Scene) -> set[int]:
    """The vNPUs in CDI files."""
    ids = (int(node.removeprefix("/dev/davinci")) for node in _given(scene))
    return {vnpu for vnpu in ids if vnpu >= 100}
