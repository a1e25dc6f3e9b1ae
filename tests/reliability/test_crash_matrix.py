"""The daemon dies at every system call that matters, and the next one goes on.

Nobody lists the calls: a daemon that does something is killed at the first point at which none has
died before, on a node of its own, until one comes to the end. The next daemon runs in this process.
"""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.reliability.crashes import (
    Act,
    Scene,
    nothing_yet,
    outdated,
    prepare,
    published,
    start,
    stop,
    unprepare,
)
from tests.reliability.deaths import Reaper, mortal_agent
from tests.reliability.holds import given
from tests.reliability.points import Points
from tests.rig import NODE, Rig
from tests.waiting import until
from trio_npu_dra.kube.objects import Device, Node, ObjectMeta, ResourceSlice
from trio_npu_dra.rpc import RpcError
from trio_npu_dra.simulator import create_board, load_profile
from trio_npu_dra.standins.kubelet import open_kubelet

LIMIT_SECONDS = 60.0
POINTS_LIMIT = 100
END = "the end"


@dataclass(frozen=True)
class Seen:
    """What every death begins with, and what a node without deaths has.

    Attributes:
        scene: A slice is published and a claim prepared; the daemon was stopped in order.
        files: Of a daemon that runs and has prepared nothing.
        files_of_claim: Beside them for each claim that is prepared, with `{uid}` for its UID.
    """

    scene: Scene
    files: frozenset[str]
    files_of_claim: frozenset[str]

    def of(self, uid: str) -> set[str]:
        """The files of one claim."""
        return {name.format(uid=uid) for name in self.files_of_claim}


@pytest.fixture(scope="module")
def seen(simulator: Path) -> Iterator[Seen]:
    """A run in which nothing dies."""
    with TemporaryDirectory(prefix="npu-") as name:
        yield _good_run(Path(name), simulator, is_shared=False)


@pytest.fixture(scope="module")
def shared(simulator: Path) -> Iterator[Seen]:
    """The same with claims that have a share of their NPU."""
    with TemporaryDirectory(prefix="npu-") as name:
        yield _good_run(Path(name), simulator, is_shared=True)


def _good_run(folder: Path, simulator: Path, *, is_shared: bool) -> Seen:
    board = create_board(load_profile("910b4-8"), folder / "host", prebuilt=simulator)
    rig = Rig(folder, board, sharing="shares" if is_shared else "none")
    rig.api.add(Node(metadata=ObjectMeta(name=NODE)))
    rig.lay_out()
    share = "share-1" if is_shared else None
    kept, new = (
        rig.claim("kept", "npu-0", share_id=share),
        rig.claim("new", "npu-1", share_id=share),
    )
    scene = Scene(rig, kept, new, is_shared)
    files: list[set[str]] = []

    async def run() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            async with rig.served_api(), rig.registered() as kubelet:
                await rig.published()
                await scene.prepare(kubelet, [scene.kept])
                await scene.unprepare(kubelet, [scene.kept])
                files.append(scene.files)
                await scene.prepare(kubelet, [scene.kept])
                files.append(scene.files)

    trio.run(run)
    of_claim = {name.replace(scene.kept.uid, "{uid}") for name in files[1] - files[0]}
    return Seen(scene, frozenset(files[0]), frozenset(of_claim))


@pytest.fixture(scope="module")
def killed(seen: Seen) -> Iterator[Scene]:
    """Dead sockets, a claim without a CDI file, half of that file, and slices that are outdated."""
    with TemporaryDirectory(prefix="npu-") as folder:
        scene = seen.scene.like(Path(folder))
        trio.run(_die_once, scene, prepare, lambda point: not point.startswith("rename cdi/"))
        outdated(scene)
        yield scene


async def test_a_death_in_a_start_after_another_death(seen: Seen, killed: Scene) -> None:
    """It repairs, listens, registers and publishes."""
    points = await _die_everywhere(seen, killed, start)
    assert _kinds(points) >= {"bind", "open", "receive", "remove", "rename", "send"}


async def test_a_death_in_a_first_start(seen: Seen, killed: Scene, folder: Path) -> None:
    """Nothing is there yet; apart from what other starts do too, which is tried above."""
    scene = seen.scene.like(folder)
    nothing_yet(scene)
    points = await _die_everywhere(seen, scene, start, but=await _points(killed, start))
    assert _kinds(points) >= {"mkdir", "open", "receive", "send"}


async def test_a_death_in_a_prepare(seen: Seen) -> None:
    """The call fails, and the claim is prepared or is not."""
    points = await _die_everywhere(seen, seen.scene, prepare)
    assert _kinds(points) >= {"open", "rename", "send", "write"}


async def test_a_death_in_an_unprepare(seen: Seen) -> None:
    """The call fails, and the claim is prepared or is not."""
    points = await _die_everywhere(seen, seen.scene, unprepare)
    assert _kinds(points) >= {"remove", "send"}


async def test_a_death_in_a_prepare_of_a_share(seen: Seen, shared: Seen) -> None:
    """No container starts while its chip is not shared, and no chip stays shared for nobody.

    Apart from what every prepare does, which is tried above.
    """
    usual = await _points(seen.scene, prepare)
    points = await _die_everywhere(shared, shared.scene, prepare, but=usual)
    assert any(point.endswith("board.state") for point in points)


async def test_a_death_in_an_unprepare_of_a_share(seen: Seen, shared: Seen) -> None:
    """The same."""
    usual = await _points(seen.scene, unprepare)
    points = await _die_everywhere(shared, shared.scene, unprepare, but=usual)
    assert any(point.endswith("board.state") for point in points)


async def test_a_death_in_a_start_that_finishes_a_share(shared: Seen, folder: Path) -> None:
    """Apart from what other starts do too, which is tried above."""
    usual = await _points(shared.scene, start)
    scene = shared.scene.like(folder)
    await _die_once(scene, prepare, lambda point: not point.endswith("board.state"))
    points = await _die_everywhere(shared, scene, start, but=usual)
    assert any("claims/NEW" in point for point in points)


async def test_a_death_in_a_stop(seen: Seen) -> None:
    """Apart from what it does for the call in flight, which is tried above."""
    calls = await _points(seen.scene, prepare)
    points = await _die_everywhere(seen, seen.scene, stop, but=calls)
    assert _kinds(points) >= {"remove"}


# --- all deaths ----------------------------------------------------------------------------------


async def _die_everywhere(
    seen: Seen, scene: Scene, act: Act, *, but: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Die in *act* at each point, each time on a node like *scene*, and see the next daemon go on.

    Args:
        seen: What a node without deaths has.
        scene: What is there before.
        act: What is done.
        but: Points that are left out.

    Returns:
        The others.
    """
    devices = _published(seen.scene)
    tried = but
    while END not in tried:
        assert len(tried) < POINTS_LIMIT, f"points have no stable names: {sorted(tried)}"
        with TemporaryDirectory(prefix="npu-") as folder:
            node = scene.like(Path(folder))
            point = END
            try:
                with trio.fail_after(LIMIT_SECONDS):
                    async with node.rig.served_api():
                        point = await _die(node, act, tried.__contains__)
                        _judge_what_is_left(seen, node)
                        await _go_on(seen, node)
                assert _published(node) == devices
                assert node.slice_writes == node.writes
            except Exception as error:
                error.add_note(f"after a death before: {point}")
                raise
        tried |= {point}
    return tried - but - {END}


async def _die_once(scene: Scene, act: Act, spares: Callable[[str], bool]) -> None:
    with trio.fail_after(LIMIT_SECONDS):
        async with scene.rig.served_api():
            await _die(scene, act, spares)


async def _die(scene: Scene, act: Act, spares: Callable[[str], bool]) -> str:
    """Start an agent, have it act, kill it at the first point that is not spared, or at the end."""
    reaper = Reaper(Points(scene.rig.folder, scene.changed, scene.names), spares)
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
            await kubelet.health.wait_until(lambda health: len(health) == 8)
            everything = [
                scene.kept,
                scene.new,
                scene.rig.claim("other", "npu-2", share_id=scene.share),
            ]
            await scene.prepare(kubelet, everything)
            _has_files(seen, scene, {claim.uid for claim in everything})
            assert len(set(_given(scene))) == len(_given(scene)) == len(everything)
            assert scene.shared_chips == ({0, 1, 2} if scene.is_shared else set())
            await published(scene, since=lists)
            await scene.unprepare(kubelet, everything)
        _has_files(seen, scene, set())
        assert scene.shared_chips == set()
    assert not [name for name in scene.files if name.endswith(".sock")]


async def _points(scene: Scene, act: Act) -> frozenset[str]:
    """The points of *act*, without a death on the way."""
    points: list[str] = []

    def spare(point: str) -> bool:
        points.append(point)
        return True

    with TemporaryDirectory(prefix="npu-") as folder:
        await _die_once(scene.like(Path(folder)), act, spare)
    return frozenset(points)


def _kinds(points: frozenset[str]) -> set[str]:
    """The first words."""
    return {point.split()[0] for point in points}


# --- what is there -------------------------------------------------------------------------------


def _has_files(seen: Seen, scene: Scene, held: set[str]) -> None:
    """No file is missing and none is left over, given which claims are prepared."""
    needed = {name for uid in held for name in seen.of(uid)}
    assert needed <= scene.files <= seen.files | needed


def _published(scene: Scene) -> tuple[Device, ...]:
    """The devices of the one slice."""
    (item,) = scene.api.all(ResourceSlice)
    return item.spec.devices or ()


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
