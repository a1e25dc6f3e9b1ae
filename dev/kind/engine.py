"""Docker: this machine's, or one of our own where no daemon answers.

Our own is Debian's, in a root that debootstrap made, in mount, network and process namespaces that
end with its first process: nothing of its containers, bridges and rules is left after an end or a
kill. Its images stay in the cache, so one of our own runs at a time; its next start removes what
containers have left there.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import images
from dev.cluster.binaries import cache, locked, pause, workspace
from dev.cluster.leftovers import remove_left
from dev.cluster.processes import ClusterError, Program, run, wait_until
from requirements.pin_base import DOCKERFILE, pinned

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
DEBIAN = images.debian(
    "local/docker:1",
    "ca-certificates",
    "docker-cli",
    "docker.io",
    "iproute2",
    "iptables",
    "nftables",
)
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"
LABEL = "io.github.trio-npu-dra"
"""Of the images that are built here, so that only those are removed."""


def answering() -> str:
    """The program of this machine's containers, empty if none answers.

    It is docker, or the one that kind is configured to use.
    """
    program = os.environ.get("KIND_EXPERIMENTAL_PROVIDER", "docker")
    try:
        run(program, "info", timeout=30)
    except ClusterError:  # it is not there, or only its client is
        return ""
    return program


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A docker that answers, or podman.

    `pid` is the first process of our own, None on this machine's; `state` is its folder, whose name
    is that of its cgroup, too. `daemon` is how this process started it, if it did.
    """

    state: Path
    program: str = "docker"
    pid: int | None = None
    daemon: Program | None = None

    @classmethod
    def start(cls, identity: str, *, logs: Path, outlives: bool = False) -> Engine:
        """Take this machine's, or start one of our own and wait until it answers.

        Args:
            identity: The name of our own.
            logs: The folder of its log.
            outlives: Whether our own goes on when this process ends.

        Raises:
            ClusterError: Our own did not start; the message has its log.
        """
        found = cls.found(identity)
        if not found.is_ours:
            return found
        state, root = found.state, docker_root()
        state.mkdir()
        data = cache() / "docker"
        data.mkdir(exist_ok=True)
        space = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
        daemon = Program.start(
            "docker",
            [
                *(*space, "--propagation", "private", "--", "sh", HERE / "engine.sh"),
                *(root, state, data, pause(), cache(), ROOT, tempfile.gettempdir()),
            ],
            logs=logs,
            child=True,
            outlives=outlives,
        )

        def look() -> Engine | None:
            daemon.check()
            engine = cls(state=state, pid=daemon.pid or 0, daemon=daemon)
            return engine if engine.pid and engine._answers() else None

        try:
            engine = wait_until(look, "docker answers", timeout=60)
            engine._forget_the_killed()
        except BaseException:
            daemon.kill()
            remove_left(identity)
            raise
        return engine

    @classmethod
    def found(cls, identity: str) -> Engine:
        """This machine's, or one of our own that another process has started.

        Its `pid` is 0 if it does not run.
        """
        state = Path(tempfile.gettempdir()) / identity
        told = state / "pid"
        if not state.exists() and (program := answering()):
            return cls(state=state, program=program)
        pid = int(told.read_text()) if told.exists() else 0
        return cls(state=state, pid=pid if identity in _mounts(pid) else 0)

    @property
    def is_ours(self) -> bool:
        """Whether it is one of our own."""
        return self.pid is not None

    @property
    def is_offline(self) -> bool:
        """Whether it can ask no registry, so that each image is made here."""
        return self.is_ours or not _can_pull(self.program)

    @property
    def network(self) -> Path | None:
        """The network namespace of its containers' ports; None for this process's own."""
        return Path(f"/proc/{self.pid}/ns/net") if self.pid else None

    def ask(self, *words: str | Path, stdin: str | None = None, timeout: float = 900) -> str:
        """Run a command of docker, or of podman."""
        return self.run(self.program, *words, stdin=stdin, timeout=timeout)

    def inside(self, *further: str) -> tuple[str, ...]:
        """The prefix of a command that must run in its network; *further* are flags of nsenter."""
        if self.pid is None:
            return ()
        return ("nsenter", f"--target={self.pid}", "--net", *further)

    def run(
        self,
        *argv: str | Path,
        stdin: str | None = None,
        programs: Sequence[Path] = (),
        timeout: float = 900,
    ) -> str:
        """Run docker, or a program that runs docker, in the root of this tree.

        Args:
            argv: The program and its arguments; paths are this machine's.
            stdin: Its input.
            programs: Folders of further programs.
            timeout: Seconds that it may take.

        Returns:
            Its stdout.

        Raises:
            ClusterError: It failed.
        """
        if self.pid is None:
            return run(*argv, stdin=stdin, cwd=ROOT, timeout=timeout)
        search = ":".join((*map(str, programs), SEARCH))
        prefix = (
            *self.inside("--mount", "--pid", "--root", f"--wdns={ROOT}"),
            *("env", f"PATH={search}", f"DOCKER_HOST=unix://{self.state}/docker.sock"),
        )
        return run(*prefix, *argv, stdin=stdin, timeout=timeout)

    def has(self, image: str) -> bool:
        """Whether it has an image."""
        try:
            self.ask("image", "inspect", image)
        except ClusterError:
            return False
        return True

    def build(self, *words: str | Path, tag: str, stdin: str | None = None) -> None:
        """Build an image; `words` are the command's arguments."""
        label = f"--label={LABEL}=1"
        self.ask("build", label, "--tag", tag, *words, stdin=stdin, timeout=1800)

    def load(self, base: images.Base) -> str:
        """Give it one of our base images, unless it has that; returns the image's name."""
        tag = base.ready()
        if not self.has(tag):
            with workspace("image") as temp:
                archive = Path(temp, "image.tar")
                images.buildah("push", tag, f"docker-archive:{archive}:{tag}")
                self.ask("load", "--input", archive)
        return tag

    def address_of(self, container: str) -> str:
        """The address of a container in kind's network."""
        form = '{{(index .NetworkSettings.Networks "kind").IPAddress}}'
        return self.ask("inspect", "--format", form, container).strip()

    def init_of(self, container: str) -> int:
        """The first process of a container, by its id, as this process numbers processes.

        Raises:
            ClusterError: It does not run.
        """
        found = {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                if container not in (status.parent / "cgroup").read_text():
                    continue
                (numbers,) = (
                    line.split()[1:]
                    for line in status.read_text().splitlines()
                    if line.startswith("NSpid:")
                )
            except OSError:  # it has ended meanwhile
                continue
            if numbers[-1] == "1":
                found[len(numbers)] = int(numbers[0])
        if not found:
            raise ClusterError(f"the container {container} does not run")
        return found[min(found)]

    def stop(self) -> None:
        """End our own; this machine's goes on, without images whose names went to newer ones."""
        if self.pid is None:
            self.ask("image", "prune", "--force", "--filter", f"label={LABEL}")
        elif self.daemon:
            self.daemon.kill()
        elif self.pid:
            os.kill(self.pid, signal.SIGKILL)
            place = Path(f"/proc/{self.pid}")
            wait_until(lambda: not place.exists(), "docker gone", timeout=60)
        remove_left(self.state.name)

    def _answers(self) -> bool:
        try:
            self.ask("info", timeout=10)
        except ClusterError:
            return False
        return True

    def _forget_the_killed(self) -> None:
        """Remove containers, and images without a name, of which nobody is left."""
        if left := self.ask("ps", "--all", "--quiet").split():
            self.ask("rm", "--force", "--volumes", *left)
        # Younger ones are stages of images that are built again.
        self.ask("image", "prune", "--force", "--filter", "until=24h")


@functools.cache
def _can_pull(program: str) -> bool:
    """Whether it has, or can get, the image that the driver's is built on."""
    name, digest = pinned(DOCKERFILE.read_text(encoding="utf-8"))
    try:
        run(program, "pull", f"{name}@sha256:{digest}")
    except ClusterError:
        return False
    return True


def _mounts(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:  # there is no such process
        return ""


def docker_root() -> Path:
    """The folder of Debian with docker, made once."""
    place = cache() / f"docker-root-{DEBIAN.tag.rpartition(':')[2]}"
    with locked("docker-root"):
        if not place.exists():
            with workspace("docker-root") as temp:
                images.lay_out(DEBIAN.ready(), Path(temp, "root"))
                Path(temp, "root").rename(place)
    return place
