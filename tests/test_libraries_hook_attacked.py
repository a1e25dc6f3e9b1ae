"""The hook changes nothing but an image's ld.so.cache, whatever the image tries."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.hook_container import (
    FOLDER,
    PATIENT,
    Container,
    compile_library,
    prepared,
    put_library,
)
from tests.hook_program import compiled_hook

CAP_DAC_OVERRIDE = 1  # to read and write any file; what it sees is mounted read-only
LDCONFIG = ("/sbin/ldconfig.real", "/sbin/ldconfig")
CAP_WAKE_ALARM = 35  # so that containers without it cannot look into the process


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """A container that is about to be created."""
    return prepared(tmp_path)


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


def hard_link_cache(container: Container) -> None:
    """It is another name of that file."""
    container.cache.hardlink_to(container.place / "host/ld.so.cache")


def link_unfinished(container: Container) -> None:
    """So is the file that the hook writes first."""
    name = ".ascend-npu-dra.new"
    (container.root / "etc" / name).symlink_to(container.place / "host/ld.so.cache")


def link_conf_folder(container: Container) -> None:
    """/etc/ld.so.conf.d is a folder of the host."""
    (container.root / "etc/ld.so.conf.d").symlink_to(container.place / "host")


def link_driver(container: Container) -> None:
    """A folder that the driver may have is what the hook has open: `/` of the host is."""
    place = container.place / "host"
    for number in range(3, 16):  # below /proc so that the image seems to have it
        (container.root / f"proc/self/fd/{number}{place}").mkdir(parents=True)
        (container.root / f"opt/{number}").parent.mkdir(exist_ok=True)
        (container.root / f"opt/{number}").symlink_to(f"/proc/self/fd/{number}{place}")


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
    *(link_etc, link_etc_upwards, link_cache, hard_link_cache, link_unfinished),
    *(link_conf_folder, link_driver, link_dev),
    *(own_ldconfig, preload, conf_of_the_host, conf_that_includes_itself, conf_without_end),
    broken_library,
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

    more = (f"/opt/{number}" for number in range(3, 16))
    container.run(FOLDER, *more, before=f"mount --rbind /proc {container.root}/proc")

    assert outside(container) == before
    for path in container.root.rglob("ld.so.cache"):
        assert b"libsecret" not in path.read_bytes()


@pytest.mark.parametrize(
    "image",
    [
        *(link_cache, hard_link_cache, link_unfinished, link_driver),
        *(own_ldconfig, preload, conf_of_the_host, broken_library),
    ],
    ids=lambda image: image.__name__,
)
def test_most_hostile_images_get_what_others_get(
    container: Container, image: Callable[[Container], None]
) -> None:
    """They deceive nobody but themselves; a link in the place of the cache becomes a file."""
    (container.place / "host").mkdir()
    (container.place / "host/ld.so.cache").touch()
    image(container)

    assert container.run() == ""
    assert not container.cache.is_symlink()
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


def test_an_old_kernel_follows_no_link_to_the_driver(container: Container) -> None:
    """Before Linux 5.6 there is no way to say which links are fine."""
    compile_library(container.place / "host/libsecret.so")
    link_driver(container)
    old = replace(container, program=compiled_hook("-DOPENAT2=-1", PATIENT))
    more = (f"/opt/{number}" for number in range(3, 16))
    said = old.run(f"/{FOLDER}/", *more, before=f"mount --rbind /proc {container.root}/proc")
    assert said == ""
    assert container.found().keys() == {"libdcmi.so", "libany.so"}


def test_a_volume_that_changes_meanwhile_leads_nowhere(container: Container) -> None:
    """It has some of the driver's folders, and is by turns a link to what the hook has open."""
    host, volume = container.place / "host", container.place / "volume"
    for number in range(40):
        put_library(host / f"{number}/libsecret.so")
        (container.root / f"data/lib64/{number}").mkdir(parents=True)
        (volume / f"lib64/{number}").mkdir(parents=True)
    before = (
        f"mount --rbind /proc {container.root}/proc",
        f"mount --bind {volume} {container.root}/data",
    )
    folder, link, away = volume / "lib64", volume / "link", volume / "away"
    is_over = Event()

    def change() -> None:
        for number in itertools.cycle(range(5, 9)):
            if is_over.is_set():
                return
            link.symlink_to(f"/proc/self/fd/{number}{host}")
            folder.rename(away)
            link.rename(folder)
            folder.unlink()
            away.rename(folder)

    attacker = Thread(target=change)
    attacker.start()
    try:
        folders = (f"/data/lib64/{number}" for number in range(40))
        container.run(FOLDER, *folders, before="\n".join(before))
    finally:
        is_over.set()
        attacker.join()
    assert b"/data/lib64" not in container.cache.read_bytes()
    assert container.found().keys() == {"libdcmi.so", "libany.so"}


def test_the_image_cannot_pass_for_the_bundle(container: Container) -> None:
    """The hook starts in the image's root, and a runtime may say where the bundle is from there."""
    host = container.place / "host"
    (host / "etc").mkdir(parents=True)
    (container.root / "config.json").write_text(f'{{"root": {{"path": "{host}"}}}}')
    said = container.run(state={"id": "c1", "bundle": "."})
    assert 'has no absolute "bundle"' in said
    assert [*(host / "etc").iterdir()] == []


@pytest.mark.parametrize("name", ["ld.so.cache", ".ascend-npu-dra.new"])
def test_a_folder_in_the_place_of_a_file_stays(container: Container, name: str) -> None:
    """The container starts without a cache."""
    (container.root / "etc" / name / "full").mkdir(parents=True)
    assert "cannot write its /etc/ld.so.cache" in container.run()
    assert [path.name for path in (container.root / "etc").iterdir()] == [name]


def test_named_pipes_are_not_waited_for(container: Container) -> None:
    """Neither in the place of the cache nor as a library."""
    os.mkfifo(container.cache)
    os.mkfifo(container.root / "usr/lib64/libpipe.so")
    assert container.run() == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


@pytest.fixture
def hurried(container: Container) -> Container:
    """A container whose ld.so.conf is a pipe that nobody writes, and a hook of little patience."""
    os.mkfifo(container.root / "etc/ld.so.conf")
    return replace(container, program=compiled_hook("-DMILLISECONDS=200"))


def test_time_for_ldconfig_is_limited(hurried: Container) -> None:
    """An image whose ld.so.conf keeps it busy starts without a cache."""
    assert "ldconfig takes too long on its files" in hurried.run()
    assert not hurried.cache.exists()


def test_signals_give_ldconfig_no_more_time(hurried: Container) -> None:
    """Containers that share the process namespace can send the one that tells of its end."""
    before = "(while kill -CHLD $$; do sleep 0.02; done) > /dev/null 2>&1 &"
    assert "ldconfig takes too long on its files" in hurried.run(before=before)


def test_ldconfig_can_do_nothing_but_its_work(container: Container) -> None:
    """An image may hold what makes it run other code: that code reads the image, and no more."""
    spy = container.place / "spy"
    source = Path(__file__).with_name("ldconfig_spy.c")
    subprocess.run(["cc", "-static", "-o", str(spy), str(source)], check=True)
    (container.place / "another-pods").mkdir()
    (container.place / "another-pods/file").touch()
    (container.root / "volume").mkdir()
    (container.root / "opt").mkdir()
    (container.root / "opt/link").symlink_to("/proc")
    before = (
        f"mount --rbind /proc {container.root}/proc",
        f"for real in {' '.join(LDCONFIG)}; do test ! -e $real ||",
        f"mount --bind {spy} $real; done",
        f"mount --bind {container.place}/another-pods {container.root}/volume",
    )
    with Path(os.devnull).open() as file:
        os.dup2(file.fileno(), 400)  # as a runtime leaves it open
    try:
        said = container.run(FOLDER, "/opt/link", before="\n".join(before), open_files=[400])
    finally:
        os.close(400)
    assert said == ""

    assert container.cache.read_text().splitlines() == [
        "arguments: -i -X -f /dev/ld.so.conf -C /dev/ld.so.cache",
        f"rights: {1 << CAP_DAC_OVERRIDE:x} {1 << CAP_WAKE_ALARM - 32:x}",
        "new rights: 0",
        "process: 1",
        "environment: 0",
        "writes: 0 0 0",
        "processes: 0",
    ]


def test_an_ldconfig_that_needs_a_loader_is_not_run(container: Container) -> None:
    """The loader would be the image's, and so would the libraries."""
    spy = container.place / "spy"
    source = Path(__file__).with_name("ldconfig_spy.c")
    subprocess.run(["cc", "-o", str(spy), str(source)], check=True)
    before = (
        f"for real in {' '.join(LDCONFIG)}; do test ! -e $real ||",
        f"mount --bind {spy} $real; done",
    )
    assert "the host has no statically linked ldconfig" in container.run(before="\n".join(before))
    assert not container.cache.exists()


def reached_by_a_neighbour(container: Container) -> dict[str, set[str]]:
    """Ways into the hook's processes for a container that shares them: what lies there."""
    neighbour, side = container.place / "neighbour", container.place / "side"
    source = Path(__file__).with_name("hook_neighbour.c")
    subprocess.run(["cc", "-static", "-o", str(neighbour), str(source)], check=True)
    (side / "proc").mkdir(parents=True)
    secret = container.place / "shadow"
    secret.touch(mode=0o600)
    traced = (neighbour, side, secret, container.program, FOLDER)
    before = (
        f"mount --rbind /proc {side}/proc",
        f"cd {container.root}",
        shlex.join(["exec", *map(str, traced)]),
    )
    found: dict[str, set[str]] = {}
    for line in container.run(before="\n".join(before)).splitlines():
        way, what = line.split(": ")
        found.setdefault(way, set()).add(what)
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"
    return found


def test_a_neighbour_reaches_nothing(container: Container) -> None:
    """A container of the pod that shares its processes looks before and after each system call."""
    assert reached_by_a_neighbour(container) == {}


def test_a_neighbour_with_more_rights_reaches_nothing_of_the_host(container: Container) -> None:
    """As if there were no right that it lacks: it gets into ldconfig, where the container is."""
    unguarded = replace(container, program=compiled_hook("-DGUARD=CAP_DAC_OVERRIDE", PATIENT))
    reached = reached_by_a_neighbour(unguarded)
    assert set().union(*reached.values()) == {"the container's"}, reached
    assert {"root", "cwd", "exe", "fd/0", "copy of fd/0"} <= reached.keys()


def test_the_environment_is_not_used(container: Container) -> None:
    """A runtime may pass on that of the image."""
    compile_library(container.place / "libevil.so")
    evil = f"export LD_PRELOAD={container.place}/libevil.so GLIBC_TUNABLES=glibc.malloc.check=3"
    assert container.run(before=evil) == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"
