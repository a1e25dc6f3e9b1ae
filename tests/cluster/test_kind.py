"""A docker of our own leaves nothing: neither where it cannot start, nor when it is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster.binaries import cache, locked
from dev.cluster.leftovers import left_of, remove_dead
from dev.cluster.processes import ClusterError, run, wait_until
from dev.kind.engine import Engine, docker_root

pytestmark = pytest.mark.cluster

SCRIPT = """
import sys, time
from pathlib import Path
from dev.cluster.binaries import cache
from dev.cluster.images import UBUNTU
from dev.cluster.immutable import immutable
from dev.cluster.processes import wait_until
from dev.kind.engine import Engine

engine = Engine.start(sys.argv[1], logs=Path(sys.argv[2]))
engine.ask(
    *("run", "--detach", "--privileged", "--restart", "always", "--publish", "8080:80"),
    *("--volume", "/var", engine.load(UBUNTU), "sh", "-c"),
    "mount -t tmpfs none /mnt && touch /a-file /var/a-file && sleep 3600",
)
def find():
    every = ("volumes/*/_data/a-file", "overlay2/*/diff/a-file")
    files = [file for pattern in every for file in (cache() / "docker").glob(pattern)]
    return files if len(files) == 2 else None
in_volume, in_layer = wait_until(find, "the container's files")
with immutable(in_volume), immutable(in_layer):
    print("ready", flush=True)
    time.sleep(3600)
"""


def machine() -> tuple[str, str]:
    """The interfaces and the firewall rules of this machine."""
    return (
        run("ip", "-oneline", "-family", "link", "address"),
        run("chroot", docker_root(), "/usr/sbin/nft", "list", "ruleset"),
    )


@pytest.fixture
def dead() -> str:
    """The id of a process that has ended."""
    return run("sh", "-c", "echo $$").strip()


@pytest.fixture
def kept(dead: str) -> Iterator[Path]:
    """What a session leaves that failed and has ended."""
    folder = Path(tempfile.gettempdir(), f"trio-npu-dra-{dead}-failed")
    (folder / "logs").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def test_killed_docker_leaves_what_the_next_start_removes(
    tmp_path: Path, dead: str, kept: Path
) -> None:
    """Its processes, mounts, interfaces and rules end with it; containers and files at the next."""
    before = machine()
    # The script's own id cannot be known before it runs.
    identity = f"trio-npu-dra-{dead}-killed"
    script = [sys.executable, "-c", SCRIPT, identity, str(tmp_path)]

    def processes() -> list[str]:
        return [line for line in left_of(identity) if not line.startswith("cgroup ")]

    # Clusters that start beside it would remove the files of an id that has ended.
    with (
        locked("leftovers"),
        subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert any("sleep 3600" in line for line in left_of(identity))
        with pytest.raises(ClusterError, match="another docker of our own runs"):
            Engine.start(f"trio-npu-dra-{os.getpid()}-second", logs=tmp_path)
        process.kill()
        wait_until(lambda: not processes(), "its processes and mounts gone")
    assert machine() == before
    remove_dead()
    assert left_of(identity) == []
    assert [*Path(tempfile.gettempdir()).glob("trio-npu-dra-*-killed")] == []
    assert kept.exists(), "the logs of a session that failed stay"

    name = f"trio-npu-dra-{os.getpid()}-next"
    engine = Engine.start(name, logs=tmp_path)
    assert engine.ask("ps", "--all", "--quiet") == ""
    engine.stop()
    assert [*(cache() / "docker").glob("volumes/*/_data")] == []
    assert [*(cache() / "docker/image/overlay2/layerdb/mounts").iterdir()] == []
    assert left_of(f"trio-npu-dra-{os.getpid()}-") == []
    assert [*Path(tempfile.gettempdir()).glob(f"trio-npu-dra-{os.getpid()}-*")] == []
    assert machine() == before
