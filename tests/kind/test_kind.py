"""Kind's configuration, and the sessions of the e2e suite."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dev.cluster.cluster import APART
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
from dev.kind.cluster import HERE, ROOT


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


def test_second_worker_takes_only_pods_that_tolerate_its_taint(config: Config) -> None:
    """It joins with the taint that tests of a second board tolerate; the first has none."""
    first, second = config.nodes[1:]
    (patch,) = (yaml.safe_load(text) for text in second.kubeadm_config_patches)
    assert patch == {"kind": "JoinConfiguration", "nodeRegistration": {"taints": [APART]}}
    assert first.kubeadm_config_patches == []


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
