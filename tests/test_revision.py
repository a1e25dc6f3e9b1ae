"""A build says which commit it is of, and the image of a changed tree has another name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from requirements.image import BASE
from requirements.revision import ROOT
from trio_npu_dra import __version__

AUTHOR = ("-c", "user.name=us", "-c", "user.email=us@example.com")
BUILT_OF = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "NOTICE",
    "justfile",
    ".gitignore",
)


def run(tree: Path, *command: str) -> str:
    """What a command prints in a folder."""
    done = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def commit(tree: Path) -> str:
    """Commit all that is in the tree; returns the whole name of the commit."""
    run(tree, "git", "init", "--quiet")
    run(tree, "git", "add", "--all")
    run(tree, "git", *AUTHOR, "commit", "--quiet", "--message", "All")
    return run(tree, "git", "rev-parse", "HEAD").strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with our way to build, and a package of two modules and a command."""
    tree = tmp_path / "tree"
    package = tree / "trio_npu_dra"
    package.mkdir(parents=True)
    for name in BUILT_OF:
        shutil.copy(ROOT / name, tree)
    for name in ("__init__.py", "revision.py", "py.typed"):
        shutil.copy(ROOT / "trio_npu_dra" / name, package)
    (package / "__main__.py").write_text(
        "from trio_npu_dra.revision import full_version\nprint(full_version())\n"
    )
    (tree / "requirements").mkdir()
    for name in ("image.py", "revision.py"):
        shutil.copy(ROOT / "requirements" / name, tree / "requirements")
    return tree


def version_of_build(tree: Path) -> str:
    """What a package that was built of a tree calls itself."""
    place = tree / "build/made"
    run(tree, sys.executable, "setup.py", "--quiet", "build_py", f"--build-lib={place}")
    return run(place, sys.executable, "-m", "trio_npu_dra").strip()


def test_build_knows_its_revision(tree: Path) -> None:
    """It is in the package, so in its wheel and in the image; a clone asks git."""
    name = commit(tree)
    told = run(tree, sys.executable, "-m", "trio_npu_dra").strip()
    assert told == f"{__version__}, revision {name[:12]}"
    assert version_of_build(tree) == f"{__version__}, revision {name[:12]}"


def test_build_of_a_source_archive_says_that_it_knows_none(tree: Path) -> None:
    """It has neither history nor the program that asks for it."""
    without = f"{__version__}, revision unknown: not built from a git repository"
    assert version_of_build(tree) == without
    shutil.rmtree(tree / "requirements")
    shutil.rmtree(tree / "build")
    assert version_of_build(tree) == without


def test_overlay_has_the_image_of_this_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed tree has another name, so pods are replaced; or it has the image that is named."""
    name, images = commit(tree), []
    monkeypatch.delenv("NPU_DRA_IMAGE", raising=False)
    for change in ("", "# changed\n"):
        with (tree / "trio_npu_dra/__init__.py").open("a") as module:
            module.write(change)
        run(tree, "just", "overlay", "k8s/overlays/simulator")
        overlay = yaml.safe_load((tree / "build/overlay/kustomization.yaml").read_text())
        assert overlay["resources"] == ["../../k8s/overlays/simulator"]
        images += overlay["images"]
    old, new = images
    assert old.pop("newTag") == f"{__version__}-{name[:12]}"
    assert new.pop("newTag").startswith(f"{__version__}-{name[:12]}-changed-")
    assert old == new == {"name": BASE, "newName": BASE}
