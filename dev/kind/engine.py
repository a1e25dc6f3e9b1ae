"""Docker: this machine's, or one of our own where no daemon answers.

Our own is Debian's, in a root that debootstrap made, in mount, network and process namespaces that
end with its first process: nothing of its containers, bridges and rules is left after an end or a
kill. Its images stay in the cache, so one of our own runs at a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dev.cluster import cgroups, images
from dev.cluster.binaries import cache, locked, pause
from dev.cluster.processes import ClusterError, Program, run, wait_until

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
PACKAGES = ("libseccomp-dev", "pkg-config")
"""Debian's packages that kind's nodes are built with, besides those of every cluster."""
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"


def answers() -> bool:
    """Whether this machine has a docker whose daemon answers."""
    if not shutil.which("docker"):
        return False
    try:
        run("docker", "info", timeout=30)
    except ClusterError:  # only docker's client is there
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A docker that answers.

    `pid` is the first process of our own, None on this machine's; `state` is its folder, whose name
    is that of its cgroup, too. `daemon` is how this process started it, if it did.
    """

    state: Path
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
        state = Path(tempfile.gettempdir()) / identity
        if answers():
            return cls(state=state)
        state.mkdir(exist_ok=True)
        data = cache() / "docker"
        data.mkdir(exist_ok=True)
        space = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
        daemon = Program.start(
            "docker",
            [
                *("flock", "--nonblock", "--no-fork", data.with_suffix(".lock")),
                *(*space, "--propagation", "private", "--", "sh", HERE / "engine.sh"),
                *(_root(), state, data, pause(), cache(), ROOT, tempfile.gettempdir()),
            ],
            logs=logs,
            child=True,
            outlives=outlives,
        )

        def look() -> Engine | None:
            daemon.check()
            engine = cls(state=state, pid=daemon.pid, daemon=daemon)
            return engine if engine.pid and engine._answers() else None

        try:
            return wait_until(look, "docker answers", timeout=60)
        except BaseException:
            daemon.kill()
            shutil.rmtree(state)
            raise

    @property
    def is_ours(self) -> bool:
        """Whether it is one of our own."""
        return self.pid is not None

    @property
    def network(self) -> Path | None:
        """The network namespace of its containers' ports; None for this process's own."""
        return Path(f"/proc/{self.pid}/ns/net") if self.pid else None

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
        """Whether it has an image; its own filter does not know names that begin with docker.io."""
        said = self.run("docker", "images", "--format", "{{.Repository}}:{{.Tag}}")
        return image.removeprefix("docker.io/").removeprefix("library/") in said.split()

    def load(self, base: images.Base) -> str:
        """Give it one of our base images, unless it has that; returns the image's name."""
        tag = base.ready()
        if not self.has(tag):
            archive = self.state / "image.tar"
            images.buildah("push", tag, f"docker-archive:{archive}:{tag}")
            self.run("docker", "load", "--input", archive)
            archive.unlink()
        return tag

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
        """End our own; this machine's goes on."""
        if self.pid is None:
            return
        if self.daemon:
            self.daemon.kill()
        else:
            os.kill(self.pid, signal.SIGKILL)
            place = Path(f"/proc/{self.pid}")
            wait_until(lambda: not place.exists(), "docker gone", timeout=60)
        cgroups.remove(self.state.name)
        shutil.rmtree(self.state)

    def _answers(self) -> bool:
        try:
            self.run("docker", "info", timeout=10)
        except ClusterError:
            return False
        return True


def _root() -> Path:
    """The folder of Debian with docker, made once."""
    place = cache() / f"docker-root-{DEBIAN.tag.rpartition(':')[2]}"
    with locked("docker-root"):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=cache(), prefix=".docker-root-") as temp:
                images.lay_out(DEBIAN.ready(), Path(temp, "root"))
                Path(temp, "root").rename(place)
    return place
