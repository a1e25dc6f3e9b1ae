"""A changed tree's image replaces the driver's pods: its name is another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.cluster import deploy
from dev.cluster.driver import Driver
from dev.cluster.processes import run
from trio_npu_dra import __version__

pytestmark = pytest.mark.cluster


@pytest.fixture
def changed(driver: Driver, tmp_path: Path) -> Iterator[Path]:
    """This tree with a module more, and the wheels of its image; the driver of ours comes back."""
    tree = tmp_path / "tree"
    run("git", "clone", "--quiet", deploy.ROOT, tree)
    (tree / "trio_npu_dra/more.py").touch()
    run("just", "wheels", cwd=tree)
    yield tree
    deploy.apply(driver.cluster)
    driver.wait_rolled_out()


def test_changed_build_rolls_out(driver: Driver, changed: Path) -> None:
    """Though nodes pull no image that they have; metrics and command tell the two builds apart."""
    before, cluster = driver.wait_ready(), driver.cluster
    run("just", "overlay", "k8s/overlays/simulator", cwd=changed)
    overlay = changed / "build/overlay"
    (image,) = yaml.safe_load((overlay / "kustomization.yaml").read_text())["images"]
    revision = image["newTag"].removeprefix(f"{__version__}-")
    cluster.provide_image(changed, target="simulator", name=f"library/dra-npu:{image['newTag']}")
    cluster.kubectl("apply", "--kustomize", overlay)
    driver.wait_rolled_out()

    after = driver.wait_ready()
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    (container,) = after["spec"]["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    told = driver.execute("npu-dra", "--version")
    assert told.strip() == f"npu-dra {__version__}, revision {revision}"
    assert f'revision="{revision}"' in driver.page("/metrics")
