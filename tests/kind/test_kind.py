"""The parts of the code for kind that need no docker: its configuration, and its calls."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dev.cluster.cluster import APART
from dev.cluster.processes import ClusterError
from dev.cluster.releases import DEFAULT, RELEASES
from dev.cluster.suite import (
    CLUSTER,
    CONFORMANCE,
    E2E,
    RIGHTS,
    last_session,
    on_kind,
    sessions_of,
)
from dev.kind.cluster import HERE, ROOT, KindCluster, usable

FAKE = r"""#!/bin/sh
# Notes how it was called, and what it read if that was to come from there.
name=${0##*/}
echo "$name $*" >>"$NOTES"
case "$name $*" in
  "docker build "*" -") sed 's/^/  | /' >>"$NOTES" ;;
  "docker inspect "*) echo "cafe$$ $PPID" ;;
  "kubectl "*" version "*) echo "{\"serverVersion\": {\"gitVersion\": \"$SERVER\"}}" ;;
esac
"""


class Part(BaseModel):
    """A part of kind's configuration: only fields that its documentation has."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Mount(Part):
    """A file or folder of this machine in a node."""

    host_path: str
    container_path: str
    read_only: bool = False


class NodeConfig(Part):
    """One node."""

    role: Literal["control-plane", "worker"]
    labels: dict[str, str] = {}
    extra_mounts: list[Mount] = []
    kubeadm_config_patches: list[str] = []


class Config(Part):
    """The file."""

    kind: Literal["Cluster"]
    api_version: Literal["kind.x-k8s.io/v1alpha4"]
    nodes: Annotated[list[NodeConfig], Field(min_length=1)]
    feature_gates: dict[str, bool] = {}
    containerd_config_patches: list[str] = []


@pytest.fixture
def config() -> Config:
    """Our file, as kind would read it."""
    return Config.model_validate(yaml.safe_load((HERE / "cluster.yaml").read_text()))


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a `docker`, `kind`, `kubectl` and `helm` that do nothing."""
    programs, notes = tmp_path / "bin", tmp_path / "notes"
    programs.mkdir()
    for name in ("docker", "kind", "kubectl", "helm"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(notes))
    monkeypatch.setenv("SERVER", "v1.37.0")
    return notes


def calls(notes: Path, cluster: KindCluster) -> list[str]:
    """The calls since the last look, with short words for parts that differ each time."""
    text = notes.read_text().replace(str(cluster.folder), "FOLDER").replace(cluster.name, "NAME")
    notes.write_text("")
    return text.replace(f"{HERE}/", "HERE/").splitlines()


def test_config_is_one_that_kind_reads(config: Config) -> None:
    """One control plane, two workers, no feature gate; what is mounted exists."""
    assert [node.role for node in config.nodes] == ["control-plane", "worker", "worker"]
    assert config.feature_gates == {}
    for node in config.nodes:
        assert all((ROOT / mount.host_path).is_file() for mount in node.extra_mounts)


def test_config_turns_cdi_on(config: Config) -> None:
    """The patch is TOML for containerd's CRI plugin, with the folder that the driver writes to."""
    (patch,) = config.containerd_config_patches
    plugin = tomllib.loads(patch)["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["enable_cdi"] is True
    assert "/etc/cdi" in plugin["cdi_spec_dirs"]


def test_config_has_the_server_write_an_audit_log(config: Config) -> None:
    """The policy is where the flag says, and both files are in folders that the server sees."""
    plane = config.nodes[0]
    (patch,) = (yaml.safe_load(text) for text in plane.kubeadm_config_patches)
    flags = patch["apiServer"]["extraArgs"]
    assert patch["kind"] == "ClusterConfiguration"
    assert flags["audit-policy-file"] == plane.extra_mounts[0].container_path
    seen = {volume["mountPath"] for volume in patch["apiServer"]["extraVolumes"]}
    assert seen == {str(Path(path).parent) for path in flags.values()}
    policy = yaml.safe_load((ROOT / plane.extra_mounts[0].host_path).read_text())
    assert policy["kind"] == "Policy"


def test_second_worker_keeps_pods_away_that_do_not_mean_it(config: Config) -> None:
    """It joins with the taint that tests of a second board tolerate; the first has none."""
    first, second = config.nodes[1:]
    (patch,) = (yaml.safe_load(text) for text in second.kubeadm_config_patches)
    assert patch == {"kind": "JoinConfiguration", "nodeRegistration": {"taints": [APART]}}
    assert first.kubeadm_config_patches == []


def test_second_worker_is_found_for_sessions_that_want_it(notes: Path) -> None:
    """Tests reach into it as into the first."""
    cluster = KindCluster.start(nodes=2)
    assert [node.name for node in cluster.nodes] == [
        f"{cluster.name}-worker",
        f"{cluster.name}-worker2",
    ]
    assert cluster.node is cluster.nodes[0]
    made = "docker inspect --format {{.Id}} {{.State.Pid}} NAME-worker2"
    assert made in calls(notes, cluster)
    cluster.stop()


def test_cluster_is_made_used_and_removed(notes: Path, tmp_path: Path) -> None:
    """Each step is the command that a person would type, and nothing is left behind."""
    assert usable()
    cluster = KindCluster.start()
    assert calls(notes, cluster) == [
        "docker info",
        (
            "kind create cluster --name NAME --wait 3m"
            " --config HERE/cluster.yaml --kubeconfig FOLDER/kubeconfig"
        ),
        "docker inspect --format {{.Id}} {{.State.Pid}} NAME-control-plane",
        "docker inspect --format {{.Id}} {{.State.Pid}} NAME-worker",
        "kubectl --kubeconfig FOLDER/kubeconfig version --output json",
        "docker build --tag docker.io/library/ubuntu-ldpath:latest -",
        "  | FROM docker.io/library/ubuntu:latest",
        "  | ENV LD_LIBRARY_PATH=/opt/app/lib",
        "kind load docker-image docker.io/library/ubuntu-ldpath:latest --name NAME",
        (
            "kubectl --kubeconfig FOLDER/kubeconfig"
            " wait --for=condition=Ready nodes --all --timeout=120s"
        ),
    ]

    cluster.provide_image(tmp_path, target="simulator", name="library/dra-npu:1.0.0")
    cluster.node.execute("rm", "/dev/davinci0")
    cluster.node.restart_kubelet()
    cluster.node.kill_kubelet()
    cluster.node.start_kubelet()
    cluster.helm("list")
    assert calls(notes, cluster) == [
        f"docker build --tag docker.io/library/dra-npu:1.0.0 --target simulator {tmp_path}",
        "kind load docker-image docker.io/library/dra-npu:1.0.0 --name NAME",
        "docker exec NAME-worker rm /dev/davinci0",
        "docker exec NAME-worker systemctl kill --signal=KILL kubelet",
        "docker exec NAME-worker systemctl kill --signal=KILL kubelet",
        "docker exec NAME-worker systemctl stop kubelet",
        "docker exec NAME-worker systemctl start kubelet",
        "helm --kubeconfig FOLDER/kubeconfig list",
    ]

    assert cluster.stop() is None
    assert cluster.left_behind() == []
    assert not cluster.folder.exists()
    assert calls(notes, cluster) == [
        "kind delete cluster --name NAME",
        "docker ps --all --filter label=io.x-k8s.kind.cluster=NAME --format {{.Names}}",
    ]


def test_image_that_never_changes_is_built_if_it_is_not_there(notes: Path, tmp_path: Path) -> None:
    """Docker is asked for it first; this one has none."""
    cluster = KindCluster.start()
    calls(notes, cluster)
    cluster.provide_image(tmp_path, name="library/dra-npu:past", is_final=True)
    assert calls(notes, cluster) == [
        "docker images --quiet docker.io/library/dra-npu:past",
        f"docker build --tag docker.io/library/dra-npu:past {tmp_path}",
        "kind load docker-image docker.io/library/dra-npu:past --name NAME",
    ]
    cluster.stop()


def test_logs_of_a_failed_session_stay(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are exported before the cluster goes."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the logs stay there on purpose
    cluster = KindCluster.start()
    calls(notes, cluster)
    (cluster.folder / "kubeconfig").touch()
    assert cluster.stop(keep_logs=True) == cluster.logs
    assert cluster.logs.is_dir()
    assert calls(notes, cluster) == [
        "kind export logs FOLDER/logs --name NAME",
        "kind delete cluster --name NAME",
    ]


@pytest.mark.usefixtures("notes")
def test_nodes_files_are_reached_through_its_process(tmp_path: Path) -> None:
    """The node's root is that of the container's first process, seen from this machine."""
    cluster = KindCluster.start()  # the process that called docker, this one, stands for its nodes
    assert cluster.node.pid == os.getpid()
    (tmp_path / "file").write_text("here")
    assert (cluster.node.root / tmp_path.relative_to("/") / "file").read_text() == "here"
    cluster.node.check()
    cluster.stop()


def test_old_kind_is_refused(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If its Kubernetes lacks tested features, the error says so and the cluster is removed."""
    monkeypatch.setenv("SERVER", "v1.35.0")
    with pytest.raises(ClusterError, match=r"v1\.35\.0; the tests need 1\.36 or newer"):
        KindCluster.start()
    assert "kind delete cluster" in notes.read_text().splitlines()[-1]


def test_docker_without_its_daemon_is_not_enough(
    notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client alone may be installed, without a running daemon."""
    (tmp_path / "bin/docker").write_text("#!/bin/sh\nexit 1\n")
    assert not usable()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not usable()
    assert not notes.exists()


def test_suite_runs_once_on_kind() -> None:
    """All tests run in one session."""
    assert on_kind().arguments == ("--on=kind", "tests/e2e")


def test_suite_runs_on_every_version_that_is_built() -> None:
    """All tests run on the default version, in parallel sessions; on others the marked ones."""
    sessions = {
        version: [each.arguments for each in sessions_of(release, Path("R"))]
        for version, release in RELEASES.items()
    }
    *shares, conformance = sessions.pop(DEFAULT)
    assert conformance == (str(CONFORMANCE),)
    assert {CLUSTER, CONFORMANCE} == {*CLUSTER.parent.glob("test_*.py")}
    assert all(share[-2:] == (str(RIGHTS), "--rights=R") for share in shares)
    once = Counter(path for share in shares for path in share[:-2])
    assert once == Counter(map(str, [CLUSTER, *({*E2E.glob("test_*.py")} - {RIGHTS})]))
    assert sessions == {
        version: [
            ("tests/cluster", "tests/e2e", "-m", "every_version", "--kubernetes-version", version)
        ]
        for version in RELEASES.keys() - {DEFAULT}
    }
    judge = f"{RIGHTS}::test_no_right_is_idle"
    assert last_session(Path("R")).arguments == (judge, "--rights=R")
