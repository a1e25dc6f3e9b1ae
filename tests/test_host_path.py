"""Paths of the host never lead out of its tree."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.file_times import next_tick
from trio_npu_dra.ascend.host import Host
from trio_npu_dra.ascend.host_path import _TICK_NS, KnownPaths, resolve


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with a file, and a file of ours beside it."""
    root = tmp_path / "host"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").touch()
    (tmp_path / "ours").touch()
    return root


@pytest.mark.parametrize(
    ("link", "target", "path", "found"),
    [
        ("x", "a/b", "/x/file", "/a/b/file"),
        ("x", "/a/b", "/x/file", "/a/b/file"),
        ("a/x", "../a/./b", "/a/x/file", "/a/b/file"),
        ("a/x", "/y", "/a/x/file", None),
        ("x", "x", "/x", None),
        ("x", "../../../ours", "/x", None),
        ("x", "../../../a/b/file", "/x", "/a/b/file"),
        ("x", "/a", "/x/../a/b", "/a/b"),
        ("x", "/", "/x", ""),
        ("x", "/a/b/file", "/x/more", None),
    ],
)
def test_links_lead_through_the_hosts_tree(
    root: Path, link: str, target: str, path: str, found: str | None
) -> None:
    """Relative or absolute, round in circles, or above the root, where `..` leads nowhere."""
    (root / link).symlink_to(target)
    assert resolve(str(root), path) == (None if found is None else f"{root}{found}")


def test_a_link_to_a_file_of_ours_leads_nowhere(root: Path) -> None:
    """The host has no such path."""
    (root / "x").symlink_to(root.parent / "ours")
    assert resolve(str(root), "/x") is None


def test_our_own_root_is_the_hosts(root: Path) -> None:
    """Where the host's root is not mounted elsewhere."""
    (root / "x").symlink_to(root / "a/b")
    assert resolve("/", f"{root}/x/file") == f"{root}/a/b/file"
    assert resolve("/", "/") == "/"


# --- what is known of a host ----------------------------------------------------------------------

ASKED = ("/usr/driver/lib/", "/usr/driver/tools/", "/etc/file")

CHANGES: dict[str, Callable[[Path], object]] = {
    "a folder is made": lambda root: (root / "data/driver/tools").mkdir(),
    "a folder is removed": lambda root: (root / "data/driver/lib").rmdir(),
    "a folder is renamed": lambda root: (root / "data").rename(root / "before"),
    "a link is replaced": lambda root: (root / "usr/other").replace(root / "usr/driver"),
    "nothing": lambda root: (root / "data/driver/lib/file").touch(),
}


@pytest.fixture
def host(root: Path) -> Path:
    """A host with a folder behind a link, looked at long after it was made."""
    (root / "data/driver/lib").mkdir(parents=True)
    (root / "data/other/tools").mkdir(parents=True)
    (root / "usr").mkdir()
    (root / "usr/driver").symlink_to("/data/driver")
    (root / "usr/other").symlink_to("/data/other")
    return root


def in_ten_seconds() -> int:
    """What time it will be, in nanoseconds since 1970."""
    return time.time_ns() + 10**10


@pytest.mark.parametrize("change", CHANGES)
def test_paths_are_looked_up_again_when_a_folder_on_the_way_has_changed(
    host: Path, change: str
) -> None:
    """And not before."""
    seen = Host(host_root=host, known=KnownPaths(now=in_ten_seconds))
    first = seen.existing(*ASKED)
    assert first == {"/usr/driver/lib/"}
    assert seen.existing(*ASKED) is first

    next_tick()
    CHANGES[change](host)

    again = seen.existing(*ASKED)
    assert again == {path for path in ASKED if resolve(str(host), path)}
    assert (again is first) == (change == "nothing")


@pytest.mark.parametrize(
    ("age", "is_relied_on"), [(0, False), (_TICK_NS, False), (_TICK_NS + 1, True)]
)
def test_a_folder_that_changed_a_moment_ago_is_not_relied_on(
    host: Path, age: int, *, is_relied_on: bool
) -> None:
    """Its next change may be in the same tick of the kernel's clock."""
    changed = (host / "usr").stat().st_ctime_ns  # last of all
    seen = Host(host_root=host, known=KnownPaths(now=lambda: changed + age))
    first = seen.existing(*ASKED)
    assert (seen.existing(*ASKED) is first) == is_relied_on
