"""The hook puts the driver's folders into an image's ld.so.cache, whatever a container is like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.hook_container import FOLDER, Container, compile_library, prepared, put_library


@pytest.fixture
def container(tmp_path: Path) -> Container:
    """A container that is about to be created."""
    return prepared(tmp_path)


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


def test_an_image_without_etc_gets_one(container: Container) -> None:
    """Only its loader needs the folder, perhaps."""
    (container.root / "etc").rmdir()
    assert container.run() == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"
    assert container.cache.parent.stat().st_mode & 0o7777 == 0o755


def test_what_the_image_has_configured_stays(container: Container) -> None:
    """Its ld.so.conf counts, the driver's folder comes first, a later ldconfig finds it too."""
    put_library(container.root / "opt/own/libany.so")
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
    container: Container, folder: str
) -> None:
    """A Debian image needs no ld.so.conf for its folders, whatever the host is."""
    put_library(container.root / folder / "libany.so")
    (container.root / "usr/lib64/libany.so").unlink()
    container.run()
    is_its_machine = os.uname().machine in folder
    expected = f"/{folder}/libany.so" if is_its_machine else None
    assert container.found().get("libany.so") == expected


def test_a_volume_is_neither_read_nor_written(container: Container) -> None:
    """What the pod mounts over /etc and /usr/lib64 belongs to others; the image lies below."""
    volume = container.place / "volume"
    volume.mkdir()
    compile_library(volume / "libvolume.so")
    mounts = [f"mount --bind {volume} {container.root}/{name}" for name in ("etc", "usr/lib64")]

    container.run(before="\n".join(mounts))

    assert [path.name for path in volume.iterdir()] == ["libvolume.so"]
    assert container.found().keys() == {"libdcmi.so", "libany.so"}


def test_a_file_that_is_mounted_over_the_cache_is_not_written(container: Container) -> None:
    """It comes off instead: the new cache lies below."""
    own = container.place / "own"
    own.write_text("another pod's")
    container.cache.touch()
    container.run(before=f"mount --bind {own} {container.cache}")
    assert own.read_text() == "another pod's"
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


@pytest.mark.parametrize("folder", ["/data/Ascend/driver/lib64", "/data/lib64/"])
def test_the_drivers_folder_may_lie_in_a_volume(container: Container, folder: str) -> None:
    """As where the pod mounts a toolkit on /usr/local/Ascend: the image has no such folder."""
    (container.root / "data").mkdir()
    place = f"{container.root}{folder}"
    before = (
        f"mount -t tmpfs tmpfs {container.root}/data",
        f"mkdir -p {place}",
        f"mount --bind {container.place}/driver {place}",
    )
    assert container.run(folder, before="\n".join(before)) == ""
    assert container.found()["libdcmi.so"] == str(Path(folder, "libdcmi.so"))
    assert [*(container.root / "data").iterdir()] == []


def test_folders_that_are_all_missing_are_said_once(container: Container) -> None:
    """Nothing is changed: there is nothing to find."""
    said = container.run("/opt/missing", "/usr/missing/deep")
    assert "container c1: none of the driver's folders can be reached in it" in said
    assert not container.cache.exists()


def test_a_read_only_root_is_no_obstacle(container: Container) -> None:
    """It is so for the container; some runtimes make it so before they call hooks."""
    assert container.run(before=f"mount -o remount,bind,ro {container.root}") == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"


def test_a_file_system_that_nobody_writes_is_said_once(container: Container) -> None:
    """The container starts all the same."""
    root = container.root
    before = (
        f"mount -t tmpfs tmpfs {root}",
        f"mkdir -p {root}/etc {root}/dev {root}{FOLDER}",
        f"mount --bind {container.place}/driver {root}{FOLDER}",
        f"mount -o remount,ro tmpfs {root}",  # without a name it repeats a uid that is not ours
    )
    said = container.run(before="\n".join(before))
    assert said.count("\n") == 1
    assert "container c1: cannot write its /etc/ld.so.cache: Read-only file system" in said
    assert "set LD_LIBRARY_PATH" in said


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


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ([], 'container ?: the state on stdin has no absolute "bundle"'),
        (
            {"id": "c1", "bundle": ["/"]},
            'container c1: the state on stdin has no absolute "bundle"',
        ),
        ({"bundle": "/" + "x" * 5000}, 'no absolute "bundle"'),
        ({"bundle": "/gone"}, "cannot read the bundle's config.json: No such file or directory"),
        ({"annotations": "x" * (8 << 20)}, "cannot read the state on stdin: File too large"),
    ],
    ids=["no object", "no text", "too long", "missing", "huge"],
)
def test_a_state_that_is_not_understood_stops_nobody(
    container: Container, state: object, said: str
) -> None:
    """Neither does one that is huge."""
    assert said in container.run(state=state)
    assert not container.cache.exists()


def test_many_annotations_are_no_obstacle(container: Container) -> None:
    """Kubernetes allows 256 KiB, of which JSON may make six times as much, in both texts."""
    annotations = {"annotations": {"note": "\x01" * (256 << 10)}}
    state = {**annotations, "bundle": str(container.place / "bundle")}
    assert container.run(config={**annotations, "root": {"path": "rootfs"}}, state=state) == ""


def test_the_root_is_found_among_all_that_a_config_says(container: Container) -> None:
    """Lone quotes, texts that look like JSON, nested objects, escapes, absolute paths."""
    config = {
        "process": {"env": ['A="', 'A="root":{"path":"/"}', "\\"], "root": {"path": "/"}},
        "annotations": {"root": '{"path": "/"}', "ä\n\t": "\u2028"},
        "hooks": [[[{"path": "/"}]], 1.5e3, True, None],
        "root": {"readonly": True, "x": {"path": "/"}, "path": f"{container.root}/../rootfs"},
    }
    assert container.run(config=config) == ""
    assert container.found()["libdcmi.so"] == f"{FOLDER}/libdcmi.so"
