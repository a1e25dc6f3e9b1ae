"""The cluster keeps its promises to the tests that use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.cluster import audit
from dev.cluster.api import Object
from dev.cluster.built import BuiltCluster
from dev.cluster.processes import run

pytestmark = pytest.mark.cluster

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: {host_network}
  containers:
  - name: one
    image: {image}
    command: ["sleep", "300"]
"""
LISTENING = """
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: one
    image: ubuntu
    command: ["perl", "-MIO::Socket::INET", "-e"]
    args: ["$s = IO::Socket::INET->new(Listen => 5, LocalPort => 8080); 1 while $s->accept"]
    readinessProbe:
      tcpSocket:
        port: 8080
      periodSeconds: 1
"""
DOCKERFILE = """
ARG PYTHON_IMAGE
FROM ${PYTHON_IMAGE} AS build
RUN echo 'int main(void) { return 7; }' | gcc -x c -o /seven - && python3 -m venv /venv
FROM ${PYTHON_IMAGE} AS runtime
COPY --from=build /seven /seven
COPY --from=build /venv /venv
ENTRYPOINT ["/venv/bin/python"]
FROM runtime AS extended
ENV STAGE=extended
"""


def pod(name: str, *, image: str = "ubuntu", host_network: bool = False) -> str:
    """A pod that sleeps."""
    return POD.format(name=name, image=image, host_network=json.dumps(host_network))


@contextmanager
def running(cluster: BuiltCluster, manifest: str, *names: str) -> Iterator[list[Object]]:
    """The pods of a manifest run; they are deleted afterwards."""
    cluster.apply(manifest)
    yield [cluster.wait_phase(name) for name in names]
    cluster.delete(manifest)


@pytest.mark.every_version
def test_node_is_ready_in_the_versions_asked_for(cluster: BuiltCluster) -> None:
    """The node reports Ready, the kubelet's version and containerd's."""
    node = cluster.get("node", cluster.node.name)
    assert node is not None
    conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
    info = node["status"]["nodeInfo"]
    assert conditions["Ready"] == "True"
    assert info["kubeletVersion"] == f"v{cluster.release.kubernetes}"
    assert info["containerRuntimeVersion"] == f"containerd://{cluster.release.containerd}"


def test_ubuntu_pod_runs_and_answers_exec_and_logs(cluster: BuiltCluster) -> None:
    """`image: ubuntu` without a policy is pulled from our registry, runs and takes exec."""
    with running(cluster, pod("plain"), "plain"):
        assert cluster.execute("plain", "sh", "-c", "echo $((6 * 7)); ls -d /") == "42\n/\n"
        assert cluster.container_log("plain", "one") == ""
        assert any(event.startswith("Pulled:") for event in cluster.pod_events("plain"))
    assert cluster.get("pod", "plain") is None


def test_variant_image_has_a_library_path_of_its_own(cluster: BuiltCluster) -> None:
    """ubuntu-ldpath is ubuntu with LD_LIBRARY_PATH in the image's environment."""
    with running(cluster, pod("ldpath", image="ubuntu-ldpath"), "ldpath"):
        assert cluster.execute("ldpath", "printenv", "LD_LIBRARY_PATH") == "/opt/app/lib\n"


@pytest.mark.parametrize("host_network", [False, True], ids=["pods", "host"])
def test_pod_reaches_the_api_server(cluster: BuiltCluster, host_network: bool) -> None:
    """From either network, at the service address that the kubelet puts into the environment."""
    reach = "exec 3<>/dev/tcp/$KUBERNETES_SERVICE_HOST/$KUBERNETES_SERVICE_PORT && echo reached"
    with running(cluster, pod("client", host_network=host_network), "client"):
        assert cluster.execute("client", "bash", "-c", reach) == "reached\n"


def test_kubelets_probe_reaches_pods(cluster: BuiltCluster) -> None:
    """Two pods that listen on one port become ready, each at an address of its own."""
    manifest = "---".join(LISTENING.format(name=name) for name in ("one", "two"))
    with running(cluster, manifest, "one", "two") as pods:
        assert len({pod["status"]["podIP"] for pod in pods}) == 2


def test_machines_own_network_is_left_alone(cluster: BuiltCluster) -> None:
    """No interface and no address of the cluster is visible outside its network."""
    address = cluster.network.address
    assert address in cluster.node.execute("ip", "address")
    assert address not in run("ip", "address")


def test_killed_kubelet_comes_back_and_finds_its_pods(cluster: BuiltCluster) -> None:
    """A pod's container outlives kill -9 of the kubelet, and takes exec after its return."""
    manifest = pod("survivor")
    cluster.apply(manifest)
    before = cluster.wait_phase("survivor")["status"]["containerStatuses"]
    cluster.node.restart_kubelet()

    def answers() -> bool:
        return cluster.execute("survivor", "echo", "here") == "here\n"

    cluster.wait_ok(answers, "exec after the kubelet's return")
    after = cluster.wait_phase("survivor")["status"]["containerStatuses"]
    assert after[0]["containerID"] == before[0]["containerID"]
    cluster.delete(manifest)


def test_mounted_folder_is_seen_at_the_nodes_path_only(cluster: BuiltCluster) -> None:
    """A folder shown at /usr/local/Ascend is there on the node and not on the machine."""
    board = cluster.node.folder / "board"
    board.mkdir()
    (board / "version.info").write_text("simulated\n")
    cluster.node.mount(board, "/usr/local/Ascend/driver")
    seen = cluster.node.execute("cat", "/usr/local/Ascend/driver/version.info")
    cluster.node.unmount("/usr/local/Ascend/driver")
    cluster.node.execute("rmdir", "/usr/local/Ascend/driver", "/usr/local/Ascend")
    assert seen == "simulated\n"
    assert not Path("/usr/local/Ascend/driver/version.info").exists()


def test_audit_tells_who_wrote_what(cluster: BuiltCluster) -> None:
    """A write is one request of its user; a dry run and a read are no writes."""
    mark = cluster.audit_mark()
    create = ("create", "configmap", "noted", "--from-literal=a=b")
    cluster.kubectl(*create, "--dry-run=server")
    cluster.kubectl(*create)
    cluster.get("configmap", "noted")
    cluster.kubectl("delete", "configmap", "noted")
    written = audit.writes(cluster.audit(mark), resource="configmaps", user="admin")
    assert [(one.verb, one.name, one.code) for one in written] == [
        ("create", "noted", 201),
        ("delete", "noted", 200),
    ]


def test_driver_image_is_built_pushed_and_run(cluster: BuiltCluster, tmp_path: Path) -> None:
    """A Dockerfile on our base images becomes an image that pods run, stage by stage."""
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    cluster.provide_image(tmp_path, target="extended", name="library/cluster-smoke:latest")
    manifest = pod("built", image="docker.io/library/cluster-smoke:latest")
    show = "/seven; echo $? $STAGE; /venv/bin/python -c 'import sys; print(sys.version_info[:2])'"
    with running(cluster, manifest, "built"):
        assert cluster.execute("built", "sh", "-c", show) == "7 extended\n(3, 13)\n"


def test_stopped_cluster_leaves_nothing_behind(kubernetes_version: str, tmp_path: Path) -> None:
    """With a pod running and a board mounted, stop ends every process, mount and cgroup."""
    (tmp_path / "lib.so").write_text("")
    other = BuiltCluster.start(kubernetes_version, mounts=[(tmp_path, "/usr/local/Ascend")])
    try:
        other.apply(pod("last"))
        other.wait_phase("last")
        assert other.node.execute("ls", "/usr/local/Ascend") == "lib.so\n"
        assert other.left_behind() != []
    finally:
        other.stop()
    assert other.left_behind() == []
    assert not other.folder.exists()
