"""An earlier version of the driver, as a commit of this repository has it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.binaries import cache, locked, workspace
from dev.cluster.cluster import Cluster
from dev.cluster.deploy import OVERLAY, ROOT
from dev.cluster.driver import IMAGE, NAME
from dev.cluster.processes import ClusterError, run

SPEC = "/spec/template/spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A commit; what is made of it stays in the cache."""

    commit: str

    @property
    def image(self) -> str:
        """What pods call its image, without docker.io."""
        return f"library/dra-npu:{self.commit}"

    def provide(self, cluster: Cluster) -> None:
        """Bring its image to the cluster, built by its own Dockerfile."""
        cluster.provide_image(self.tree(), name=self.image, is_final=True)

    def apply(self, cluster: Cluster, folder: Path) -> None:
        """Apply its own manifests, on the board that is there.

        The board is hardware: another driver leaves it as it is. So it is laid out, and shown to
        the driver, as by today's overlay.

        Args:
            cluster: where it has been provided.
            folder: where the overlay goes.
        """
        k8s = folder / "k8s"
        shutil.copytree(self.tree() / "k8s/base", k8s / "base", dirs_exist_ok=True)
        shutil.copytree(OVERLAY, k8s / "overlays/simulator", dirs_exist_ok=True)
        images = {"containers": self.image, "initContainers": IMAGE}
        change = [
            {"op": "replace", "path": f"{SPEC}/{kind}/0/image", "value": f"docker.io/{image}"}
            for kind, image in images.items()
        ]
        target = {"kind": "DaemonSet", "name": NAME}
        overlay = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../simulator"],
            "patches": [{"target": target, "patch": json.dumps(change)}],
        }
        place = k8s / "overlays/past"
        place.mkdir(exist_ok=True)
        (place / "kustomization.yaml").write_text(json.dumps(overlay))  # JSON is YAML
        cluster.kubectl("apply", "--kustomize", place)

    def tree(self) -> Path:
        """Its files, with the wheels that its Dockerfile wants.

        Raises:
            ClusterError: this clone does not have the commit, or the wheels could not be made.
        """
        place = cache() / f"tree-{self.commit}"
        with locked(f"tree-{self.commit}"):
            if not place.exists():
                self._make(place)
        return place

    def _make(self, place: Path) -> None:
        try:
            run("git", "cat-file", "-e", f"{self.commit}^{{commit}}", cwd=ROOT)
        except ClusterError as absent:
            raise ClusterError(
                f"commit {self.commit} is not in the clone {ROOT}: git fetch --unshallow"
            ) from absent
        with workspace("tree") as temp:
            tree, archive = Path(temp, "tree"), Path(temp, "tree.tar")
            tree.mkdir()
            run("git", "archive", f"--output={archive}", self.commit, cwd=ROOT)
            run("tar", "-x", "-f", archive, "-C", tree)
            run("just", "wheels", cwd=tree)
            tree.rename(place)
