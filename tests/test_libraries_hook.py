"""The hook puts the driver's folders into an image's ld.so.cache, and changes nothing else.

Each test lays out a root as a runtime has it when it calls such a hook: in namespaces of its own,
the driver's folder mounted in it, nothing of it running. A user namespace makes that possible
without root. What is in the cache is read by the host's own ldconfig.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.hook_program import compiled_hook

FOLDER = "/opt/driver/lib64"
CAP_DAC_OVERRIDE = 1  # to read and write any file; what it sees is mounted read-only


def compile_library(path: Path) -> None:
    """A library whose soname is its file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soname = f"-Wl,-soname,{path.name}"
    command = ["cc", "-shared", "-nostdlib", soname, "-o", str(path), "-x", "c", os.devnull]
    subprocess.run(command, check=True)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Puts a library of any name somewhere: all have one content and go by `libany.so`."""
    made = tmp_path_factory.mktemp("library") / "libany.so"
    compile_library(made)

    def put(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.read_bytes())

    return put


@dataclass(frozen=True)
class Container:
    """A container that is about to be created.

    Attributes:
        place: A folder with its root, its bundle, and the driver's folder on the host.
        program: The hook.
    """

    place: Path
    program: Path

    @property
    def root(self) -> Path:
        """The image."""
        return self.place / "bundle/rootfs"

    @property
    def cache(self) -> Path:
        """What its loader looks into."""
        return self.root / "etc/ld.so.cache"

    def run(self, *folders: str, before: str = "", config: object = None) -> str:
        """Mount the driver's folder in the root and run the hook.

        Args:
            folders: Its arguments.
            before: Shell commands that run first, in the container's namespaces.
            config: The bundle's config.json, if it is an odd one.

        Returns:
            What it says; it always succeeds.
        """
        usual = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}}
        written = json.dumps(usual if config is None else config)
        (self.place / "bundle/config.json").write_text(written)
        state = {"ociVersion": "1.0.2", "id": "c1", "bundle": str(self.place / "bundle")}
        mounts = (
            # A hook with faults must not reach the machine's own files.
            f"mount --bind {self.place} {self.place}",
            *(f"mount -o remount,bind,ro {path}" for path in ("/", "/dev")),
            f"mount --bind {self.root} {self.root}",
            f"mkdir -p {self.root}{FOLDER}",
            f"mount --bind -o ro {self.place}/driver {self.root}{FOLDER}",
        )
        hook = shlex.join(["exec", str(self.program), *(folders or (FOLDER,))])
        script = "\n".join(("set -e", *mounts, before, f"cd {self.root}", hook))
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script],
            input=json.dumps(state),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stderr

    def found(self) -> dict[str, str]:
        """Which file the loader takes for each library."""
        listed = subprocess.run(
            ["/sbin/ldconfig", "-p", "-C", str(self.cache)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = (line.split() for line in listed.splitlines()[1:] if "=>" in line)
        return {words[0]: words[-1] for words in reversed([*lines])}


@pytest.fixture
def container(tmp_path: Path, library: Callable[[Path], None]) -> Container:
    """An image with /etc, /dev and one library, and a driver with one."""
    made = Container(tmp_path, compiled_hook())
    for name in ("etc", "dev", "proc"):
        (made.root / name).mkdir(parents=True)
    library(made.root / "usr/lib64/libany.so")
    compile_library(tmp_path / "driver/libdcmi.so")
    return made


def test_an_image_without_a_cache_gets_one(container: Container) -> None:
    """As a distroless one: it names the driver's library and the image's own; all may read it."""
    assert container.run() == ""

    assert container.found() == {
        "libdcmi.so": f"{FOLDER}/libdcmi.so",
        "libany.so": "/usr/lib64/libany.so",
    }
    assert container.cache.stat().st_mode & 0o7777 == 0o644
    assert [path.name for path in (container.root / "etc").iterdir()] == ["ld.so.cache"]
    assert [*(container.root / "dev").iterdir()] == []


def test_what_the_image_has_configured_stays(
    container: Container, library: Callable[[Path], None]
) -> None:
    """Its ld.so.conf counts, the driver's folder comes first, a later ldconfig finds it too."""
    library(container.root / "opt/own/libany.so")
    compile_library(container.root / "opt/own/libdcmi.so")
    conf = container.root / "etc/ld.so.conf.d"
    conf.mkdir()
    (conf / "own.conf").write_text("/opt/own\n")
    (container.root / "etc/ld.so.conf").write_text("include ld.so.conf.d/*.conf\n")
    container.cache.write_text("stale")

    assert container.run(FOLDER, "/opt/missing") == ""

    assert container.found() == {
        "libdcmi.so": f"{FOLDER}/libdcmi.so",
        "libany.so": "/opt/own/libany.so",
    }
    assert (conf / "ascend-npu-dra.conf").read_text() == f"{FOLDER}\n/opt/missing\n"


@pytest.mark.parametrize("folder", ["lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"])
def test_folders_of_other_systems_count_on_their_machines(
    container: Container, library: Callable[[Path], None], folder: str
) -> None:
    """A Debian image needs no ld.so.conf for its folders, whatever the host is."""
    library(container.root / folder / "libany.so")
    (container.root / "usr/lib64/libany.so").unlink()
    container.run()
    is_its_machine = os.uname().machine in folder
    expected = f"/{folder}/libany.so" if is_its_machine else None
    assert container.found().get("libany.so") == expected


def link_etc(container: Container) -> None:
    """/etc is a folder of the host."""
    (container.root / "etc").rmdir()
    (container.root / "etc").symlink_to(container.place / "host")


def link_etc_upwards(container: Container) -> None:
    """Or so it is from the root, seen from outside."""
    (container.root / "etc").rmdir()
    (container.root / "etc").symlink_to("../../../../host")


def link_cache(container: Container) -> None:
    """The cache is a file of the host."""
    container.cache.symlink_to(container.place / "host/ld.so.cache")


def link_unfinished(container: Container) -> None:
    """So is the file that the hook writes first."""
    name = ".ascend-npu-dra.new"
    (container.root / "etc" / name).symlink_to(container.place / "host/ld.so.cache")


def link_conf_folder(container: Container) -> None:
    """/etc/ld.so.conf.d is a folder of the host."""
    (container.root / "etc/ld.so.conf.d").symlink_to(container.place / "host")


def link_dev(container: Container) -> None:
    """/dev, which ldconfig works in, is a folder of the host."""
    (container.root / "dev").rmdir()
    (container.root / "dev").symlink_to(container.place / "host")


def own_ldconfig(container: Container) -> None:
    """The image has an ldconfig that leaves a trace."""
    (container.root / "sbin").mkdir()
    program = container.root / "sbin/ldconfig"
    program.write_text(f"#!/bin/sh\ntouch {container.place}/host/ran\n")
    program.chmod(0o755)


def preload(container: Container) -> None:
    """Its loader is to load a library into every program."""
    (container.root / "etc/ld.so.preload").write_text("/usr/lib64/libany.so\n")


def conf_of_the_host(container: Container) -> None:
    """Its ld.so.conf names the host's folders."""
    conf = container.root / "etc/ld.so.conf"
    conf.write_text(f"include {container.place}/host/*\n/../../../host\n{container.place}/host\n")


def conf_that_includes_itself(container: Container) -> None:
    """Its ld.so.conf includes itself."""
    (container.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf\n")


def conf_without_end(container: Container) -> None:
    """Its ld.so.conf has a tebibyte."""
    with (container.root / "etc/ld.so.conf").open("wb") as conf:
        conf.truncate(1 << 40)


def broken_library(container: Container) -> None:
    """It has a broken library, and one of four tebibytes."""
    (container.root / "usr/lib64/libbroken.so").write_bytes(b"\x7fELF\x02\x01\x01" + b"\xff" * 600)
    with (container.root / "usr/lib64/libhuge.so").open("wb") as library:
        library.truncate(1 << 42)


HOSTILE = (
    *(link_etc, link_etc_upwards, link_cache, link_unfinished, link_conf_folder, link_dev),
    *(own_ldconfig, preload, conf_of_the_host, conf_that_includes_itself, broken_library),
)


def outside(container: Container) -> dict[Path, tuple[object, ...]]:
    """All that is beside the bundle, in a form that reading does not change."""
    found: dict[Path, tuple[object, ...]] = {}
    for path in container.place.rglob("*"):
        if not path.is_relative_to(container.root.parent):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[path] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("image", HOSTILE, ids=lambda image: image.__name__)
def test_a_hostile_image_changes_nothing_outside_itself(
    container: Container, image: Callable[[Container], None]
) -> None:
    """Whatever its files are; nor does anything of the host get into it."""
    host = container.place / "host"
    host.mkdir()
    (host / "ld.so.cache").write_text("the host's")
    compile_library(host / "libsecret.so")
    image(container)
    before = outside(container)

    container.run()

    assert outside(container) == before
    for path in container.root.rglob("ld.so.cache"):
        assert b"libsecret" not in path.read_bytes()


@pytest.mark.parametrize(
    "image",
    [link_cache, link_unfinished, own_ldconfig, preload, conf_of_the_host, broken_library],
    ids=lambda image: image.__name__,
)
def test_most_hostile_images_get_what_others_get(
    container: Container, image: Callable[[Container], None]
) -> None:
    """They deceive nobody but themselves; a link in the place of the cache becomes a file."""
    (container.place / "host").mkdir()
    image(container)

    assert container.run() == ""
    assert not container.cache.is_symlink()
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


def test_named_pipes_are_not_waited_for(container: Container) -> None:
    """Neither in the place of the cache nor as a library."""
    os.mkfifo(container.cache)
    os.mkfifo(container.root / "usr/lib64/libpipe.so")
    assert container.run() == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


def pipe(conf: Path) -> None:
    """Nobody writes into it."""
    os.mkfifo(conf)


def endless(conf: Path) -> None:
    """A tebibyte of nothing."""
    with conf.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("make", [pipe, endless], ids=lambda make: make.__name__)
def test_time_for_ldconfig_is_limited(container: Container, make: Callable[[Path], None]) -> None:
    """An image whose ld.so.conf keeps it busy starts without a cache."""
    make(container.root / "etc/ld.so.conf")
    hurried = replace(container, program=compiled_hook("-DMILLISECONDS=200"))
    assert "ldconfig takes too long on its files" in hurried.run()
    assert not container.cache.exists()


def test_a_volume_is_neither_read_nor_written(container: Container) -> None:
    """What the pod mounts over /etc and /usr/lib64 belongs to others; the image lies below."""
    volume = container.place / "volume"
    volume.mkdir()
    compile_library(volume / "libvolume.so")
    mounts = [f"mount --bind {volume} {container.root}/{name}" for name in ("etc", "usr/lib64")]

    container.run(before="\n".join(mounts))

    assert [path.name for path in volume.iterdir()] == ["libvolume.so"]
    assert container.found().keys() == {"libdcmi.so", "libany.so"}


def test_a_read_only_root_is_no_obstacle(container: Container) -> None:
    """It is so for the container; some runtimes make it so before they call hooks."""
    assert container.run(before=f"mount -o remount,bind,ro {container.root}") == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


def test_a_file_system_that_nobody_writes_is_said_once(container: Container) -> None:
    """The container starts all the same."""
    root = container.root
    before = (
        f"mount -t tmpfs tmpfs {root}",
        f"mkdir {root}/etc {root}/dev",
        f"mount -o remount,ro {root}",
    )
    said = container.run(before="\n".join(before))
    assert said.count("\n") == 1
    assert "container c1: cannot write its /etc/ld.so.cache: Read-only file system" in said
    assert "set LD_LIBRARY_PATH" in said


def test_ldconfig_can_do_nothing_but_its_work(container: Container) -> None:
    """An image may hold what makes it run other code: that code reads the image, and no more."""
    spy = container.place / "spy"
    source = Path(__file__).with_name("ldconfig_spy.c")
    subprocess.run(["cc", "-static", "-o", str(spy), str(source)], check=True)
    (container.place / "another-pods").mkdir()
    (container.place / "another-pods/file").touch()
    (container.root / "volume").mkdir()
    before = (
        "for real in /sbin/ldconfig.real /sbin/ldconfig; do test ! -e $real ||",
        f"mount --bind {spy} $real; done",
        f"mount --bind {container.place}/another-pods {container.root}/volume",
    )
    assert container.run(before="\n".join(before)) == ""

    assert container.cache.read_text().splitlines() == [
        "arguments: -i -X -f /dev/ld.so.conf -C /dev/ld.so.cache",
        f"rights: {1 << CAP_DAC_OVERRIDE:x} 0",
        "new rights: 0",
        "process: 1",
        "environment: 0",
        "writes: 0 0 0",
    ]


def test_the_environment_is_not_used(container: Container) -> None:
    """A runtime may pass on that of the image."""
    compile_library(container.place / "libevil.so")
    evil = f"export LD_PRELOAD={container.place}/libevil.so GLIBC_TUNABLES=glibc.malloc.check=3"
    assert container.run(before=evil) == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"root": {"path": "/"}}, "its root is the host's"),
        ({"root": {}}, 'has no "root.path"'),
        ([], 'has no "root.path"'),
        ({"process": {"env": ['"root":{"path":"/"}']}}, 'has no "root.path"'),
        ({"root": {"path": "gone"}}, "cannot look at its root: No such file or directory"),
        ({"root": {"path": "x" * 5000}}, 'has no "root.path"'),
    ],
)
def test_a_bundle_that_is_not_understood_stops_nobody(
    container: Container, config: object, said: str
) -> None:
    """The container starts, and the text says what is wrong."""
    assert said in container.run(config=config)
    assert not container.cache.exists()


def test_the_root_is_found_among_all_that_a_config_says(container: Container) -> None:
    """Texts that look like JSON, nested objects with the same names, escapes, absolute paths."""
    config = {
        "process": {"env": ['A="root":{"path":"/"}', "\\"], "root": {"path": "/"}},
        "annotations": {"root": '{"path": "/"}', "ä\n\t": "\u2028"},
        "hooks": [[[{"path": "/"}]], 1.5e3, True, None],
        "root": {"readonly": True, "x": {"path": "/"}, "path": f"{container.root}/../rootfs"},
    }
    assert container.run(config=config) == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"
