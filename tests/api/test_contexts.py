"""Promises of kubeconfig files of a person: several are read as one, as kubectl does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.nobody import closed
from trio_npu_dra.kit.api.kubeconfig import read_context
from trio_npu_dra.kit.base.errors import ConfigError, StorageError
from trio_npu_dra.tools.login.login import files_of_person, log_in


def write(path: Path, **config: Any) -> Path:
    """A kubeconfig file in a folder of its own."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({key.replace("_", "-"): value for key, value in config.items()}))
    return path


def cluster(name: str, server: str) -> dict[str, Any]:
    """An entry of `clusters`."""
    return {"name": name, "cluster": {"server": server, "certificate-authority": "ca.crt"}}


def context(name: str, of: str, **fields: str) -> dict[str, Any]:
    """An entry of `contexts`, of the cluster and the user *of*."""
    return {"name": name, "context": {"cluster": of, "user": of, **fields}}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    """Two files: the first has contexts and a user, the second clusters and users."""
    first = write(
        tmp_path / "first/config",
        contexts=[context("a", "north"), context("b", "south", namespace="team")],
        clusters=None,
        users=[{"name": "north", "user": {"token": "of-first"}}],
    )
    second = write(
        tmp_path / "second/config",
        current_context="b",
        contexts=[context("b", "north")],
        clusters=[cluster("north", "https://north"), cluster("south", "https://south")],
        users=[
            {"name": "north", "user": {"token": "of-second"}},
            {"name": "south", "user": {"tokenFile": "token"}},
        ],
    )
    return first, second


def test_several_files_are_one(files: tuple[Path, ...]) -> None:
    """The first file with an entry of a name has it, whatever later files say."""
    chosen = read_context(files)
    assert (chosen.cluster.server, chosen.namespace) == ("https://south", "team")
    assert (chosen.cluster_file, chosen.user_file) == (files[1], files[1])
    other = read_context(files, "a")
    assert (other.cluster.server, other.user.token) == ("https://north", "of-first")
    assert (other.namespace, other.user_file) == ("default", files[0])
    assert read_context(files[::-1]).cluster.server == "https://north"


async def test_paths_are_relative_to_the_file_that_has_them(files: tuple[Path, ...]) -> None:
    """Not to the first one."""
    folder = files[1].parent
    with pytest.raises(ConfigError, match=f"cannot read {folder}/token"):
        await log_in(read_context(files))
    with pytest.raises(ConfigError, match=f"cannot read {folder}/ca.crt"):
        await log_in(read_context(files, "a"))


def test_missing_files_of_several_are_no_error(files: tuple[Path, ...], tmp_path: Path) -> None:
    """Nor are empty names, or empty files."""
    empty = tmp_path / "empty"
    empty.touch()
    named = os.pathsep.join(("", str(tmp_path / "absent"), str(empty), *map(str, files)))
    found = files_of_person({"KUBECONFIG": named})
    assert found == (empty, *files)
    assert read_context(found).cluster.server == "https://south"


def test_the_usual_file_is_below_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without KUBECONFIG; where there is none, a pod's account may do."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files_of_person({"KUBECONFIG": ""}) == ()
    usual = write(tmp_path / ".kube/config")
    assert files_of_person({}) == (usual,)


def test_a_file_out_of_reach_is_no_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other credentials would be used in silence."""
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = write(tmp_path / ".kube/config")
    for environment in ({}, {"KUBECONFIG": f"/absent:{usual}"}):
        with closed(usual.parent), pytest.raises(StorageError, match=f"{usual}: Permission denied"):
            files_of_person(environment)


def test_what_is_missing_is_named(files: tuple[Path, ...], tmp_path: Path) -> None:
    """With all files that were looked into."""
    with pytest.raises(ConfigError, match="KUBECONFIG=/absent names no file that exists"):
        files_of_person({"KUBECONFIG": "/absent"})
    both = f"{files[0]}, {files[1]}: "
    with pytest.raises(ConfigError) as caught:
        read_context(files, "c")
    assert str(caught.value) == f"{both}contexts has no entry named 'c'"
    with pytest.raises(ConfigError, match="current-context is missing"):
        read_context(files[:1])
    broken = write(tmp_path / "broken", contexts=[context("z", "east")], current_context="z")
    with pytest.raises(ConfigError, match="clusters has no entry named 'east'"):
        read_context((broken, *files))
