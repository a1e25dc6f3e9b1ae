"""What README.md says of an install, word for word, with the real kubectl.

The registry is missing, which takes what was built, and the cluster, so that kubectl renders what
it would apply.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
import yaml

from dev.cluster.binaries import kubernetes
from dev.cluster.processes import run
from dev.cluster.releases import DEFAULT
from dev.site.chart_values import ROOT

PROGRAMS = {
    "docker": """
        case $1 in
          build) shift; while [ "$1" != --tag ]; do shift; done; echo "$2" >>"$0.built" ;;
          push) grep --quiet --line-regexp --fixed-strings "$2" "$0.built" ;;
          *) exit 1 ;;
        esac
    """,
    "kubectl": """
        case "$1 $2" in
          "apply -k") exec KUBECTL kustomize "$3" ;;
          "get resourceslices") ;;
          *) exit 1 ;;
        esac
    """,
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, and beside it programs that do what needs a registry or a cluster."""
    folder = tmp_path_factory.mktemp("readme")
    run("git", "clone", "--quiet", ROOT, folder / "clone")
    kubectl = kubernetes(DEFAULT).ready() / "kubectl"
    (folder / "bin").mkdir()
    for name, text in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh{text.replace('KUBECTL', shlex.quote(str(kubectl)))}")
        program.chmod(0o755)
    return folder / "clone"


def install() -> str:
    """The first commands below README's Install."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install\n")[2]
    return text.partition("```sh\n")[2].partition("```")[0]


def images(clone: Path, script: str) -> set[str]:
    """Those of the pods that are applied, when the script has run without an error."""
    path = f"{clone.parent}/bin:{os.environ['PATH']}"
    rendered = run(
        "bash", "-euc", script, cwd=clone, env={"PATH": path, "NPU_DRA_BUILDER": "docker"}
    )
    specs = [
        about["spec"]["template"]["spec"]
        for about in yaml.safe_load_all(rendered[rendered.index("apiVersion:") :])
        if about["kind"] == "DaemonSet"
    ]
    return {each["image"] for spec in specs for each in spec["containers"]}


def test_readmes_install_runs_as_it_stands(clone: Path) -> None:
    """It builds, pushes what it has built, and applies just that; what else is in build/ stays."""
    kept = [clone / "build" / name for name in ("overlay/mine", "site/index.html")]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (name,) = re.findall(r"NPU_DRA_IMAGE=(\S+)", install())
    assert images(clone, install()) == {name}
    assert all(path.exists() for path in kept)
