"""Paths of the host never lead out of its tree."""

from pathlib import Path

import pytest

from trio_npu_dra.ascend.host_path import resolve


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
