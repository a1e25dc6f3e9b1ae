"""`npu-dra ranktable` against an API server: finding the job, waiting for it, and the output."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from dev.rig.waiting import until
from tests.nobody import closed
from tests.ranktable.jobs import LWS, claim, npu, pod
from trio_npu_dra.ascend.model import ChipFamily
from trio_npu_dra.kit.api.pods import PlacedPod

if TYPE_CHECKING:
    from tests.ranktable.conftest import Cluster


@pytest.mark.parametrize(
    "job", ["job/train", "statefulset/train", "jobset/train", "lws/train", "job=train"]
)
async def test_a_job_is_its_controllers_pods(cluster: Cluster, job: str) -> None:
    """Or those with some labels; the controller says how many pods there must be."""
    cluster.add(pod("other", "n9", labels={"job": "other"}), npu(0))
    cluster.add_job("n0", "n1")
    servers = (await cluster.table(job))["server_list"]
    assert [server["server_id"] for server in servers] == ["n0", "n1"]

    cluster.state.remove(PlacedPod, "train-1", "train")
    code, out, err = await cluster.run(job)
    if job == "job=train":
        assert code == 0
    else:
        assert (code, out) == (1, "")
        there, summary = err.splitlines()
        assert there == "1 of 2 pods are there; those with index 1 are not"
        assert summary == f"npu-dra ranktable: {job} is not complete yet; --wait waits for it"


async def test_it_waits_for_the_last_pod(cluster: Cluster) -> None:
    """By a watch, through restarts of the API server; other pods change nothing."""
    cluster.add_job("n0")
    late = pod("train-1", None, index=1)
    stored = cluster.state.add(late)
    tables = []

    async def wait() -> None:
        tables.append(await cluster.table("job/train", "--wait"))

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await until(lambda: cluster.state.asked("watch", "resourceclaims") > 0)
        cluster.state.fail_next(status=503, verb="watch")
        cluster.state.end_watches()
        cluster.add(pod("other", "n9", labels={"job": "other"}), npu(0))
        placed = pod("train-1", "n1", index=1).with_metadata(stored.metadata)
        cluster.state.put(placed)
        cluster.state.add(claim(placed, npu(0, ips=["10.20.1.0/24"])))
    (table,) = tables
    assert [server["server_id"] for server in table["server_list"]] == ["n0", "n1"]
    assert cluster.state.asked("list", "pods") == 1


async def test_at_the_end_of_the_wait_it_says_who_lacks_what(cluster: Cluster) -> None:
    """A line for each pod; no table is written."""
    cluster.add_job("n0")
    cluster.add(pod("train-1", None, index=1))
    code, out, err = await cluster.run("job/train", "--wait", "--timeout=1")
    assert (code, out) == (1, "")
    assert err.splitlines() == [
        "pod train-1 has no node yet",
        "npu-dra ranktable: job/train is not complete after 1 s",
    ]


async def test_a_missing_right_ends_the_wait_at_once(cluster: Cluster) -> None:
    """The message names it."""
    cluster.add_job("n0")
    cluster.state.rights = {"jobs": {"get"}, "pods": {"list", "watch"}}
    code, _, err = await cluster.run("job/train", "--wait")
    assert code == 1
    assert 'cannot list resource "resourceclaims"' in err


async def test_each_group_of_a_leader_worker_set_is_a_job(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of the own pod; elsewhere a selector names one."""
    cluster.add_job("n0", "n1")
    cluster.add_job("n2", "n3", group=1, name="other")
    code, _, err = await cluster.run("lws/train")
    assert code == 2
    assert f"has several groups: name one by {LWS}/name=train,{LWS}/group-index=0" in err
    chosen = await cluster.table(f"{LWS}/name=train,{LWS}/group-index=0")
    assert [server["server_id"] for server in chosen["server_list"]] == ["n0", "n1"]
    monkeypatch.setenv("POD_NAME", "other-1")
    own = await cluster.table("lws/train")
    assert [server["server_id"] for server in own["server_list"]] == ["n2", "n3"]


@pytest.mark.parametrize("size", ["²", "9" * 5000])
async def test_a_size_that_is_no_number_counts_as_none(cluster: Cluster, size: str) -> None:
    """Anybody can annotate a pod: that of the others counts."""
    cluster.add_job("n0", "n1")
    first = cluster.state.all(PlacedPod)[0]
    meta = first.metadata.model_copy(update={"annotations": {f"{LWS}/size": size}})
    cluster.state.put(first.with_metadata(meta))
    assert (await cluster.table("lws/train"))["server_count"] == "2"


async def test_a_file_is_replaced_as_a_whole(cluster: Cluster, tmp_path: Path) -> None:
    """By one that every user may read; nothing else is left in the folder."""
    cluster.add_job("n0", "n1")
    file = tmp_path / "out" / "hccl.json"
    file.parent.mkdir()
    file.write_text("old")
    code, out, err = await cluster.run("job/train", f"--out={file}")
    assert (code, out, err) == (0, "", f"{file} is for 2 pods\n")
    assert json.loads(file.read_text()) == await cluster.table("job/train")
    assert stat.filemode(file.stat().st_mode) == "-rw-r--r--"
    assert [*file.parent.iterdir()] == [file]


async def test_variables_for_launchers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of torchrun or msrun, for the pod in which it runs, as a shell and Kubernetes read."""
    cluster.add_job("n0", "n1")
    monkeypatch.setenv("POD_NAME", "train-1")
    code, out, _ = await cluster.run("job/train", "-o", "env")
    assert code == 0
    assert out.splitlines() == [
        "MASTER_ADDR='10.0.0.7'",
        "MASTER_PORT='29500'",
        "NNODES='2'",
        "NODE_RANK='1'",
        "NPROC_PER_NODE='1'",
        "WORLD_SIZE='2'",
    ]
    code, out, _ = await cluster.run("job/train", "-o", "env", "--framework=mindspore")
    assert out.splitlines() == [
        "MS_SCHED_HOST='10.0.0.7'",
        "MS_SCHED_PORT='8118'",
        "MS_WORKER_NUM='2'",
        "MS_LOCAL_WORKER='1'",
        "MS_NODE_RANK='1'",
    ]
    monkeypatch.delenv("POD_NAME")
    monkeypatch.setattr("socket.gethostname", lambda: "train-0.train.default.svc")
    code, out, _ = await cluster.run("job/train", "-o", "env")
    assert "NODE_RANK='0'" in out
    monkeypatch.setenv("POD_NAME", "somewhere")
    code, _, err = await cluster.run("job/train", "-o", "env")
    assert code == 2
    assert "no pod of the job with NPUs is called somewhere" in err
    monkeypatch.setenv("POD_NAME", "train-1")
    _, _, err = await cluster.run("job/train", "-o", "env", "--explain")
    head, _, of_own, need = err.splitlines()
    assert head.startswith("NODE_RANK ")
    assert of_own.split()[:3] == ["1", "train-1", "n1"]
    assert need.startswith("torchrun and msrun need no rank table")


async def test_a_device_that_is_not_ready_is_a_warning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table as of variables: the job may start all the same."""
    device = npu(3)
    device["conditions"][0] |= {"status": "False", "reason": "Unhealthy", "message": "link down"}
    cluster.add(pod("train-0", "n0", index=0), device)
    monkeypatch.setenv("POD_NAME", "train-0")
    for form in ("json", "env"):
        code, _, err = await cluster.run("job=train", "-o", form)
        assert (code, err) == (0, "warning: npu-3 of pod train-0 is not Ready: link down\n")


async def test_pods_of_a_node_get_ranks_that_follow_each_other(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then NODE_RANK is not the index, which is a warning or an error."""
    cluster.add_job("n0", "n1", "n0")
    monkeypatch.setenv("POD_NAME", "train-2")
    code, out, err = await cluster.run("job=train", "-o", "env")
    assert code == 0
    assert "NODE_RANK='1'" in out
    assert "are together: train-0, train-2, train-1" in err
    code, _, err = await cluster.run("job=train", "--keep-order")
    assert code == 1
    assert "--keep-order: by index" in err
    assert "without the flag the order is train-0, train-2, train-1" in err


async def test_a_table_that_hccl_would_refuse_is_not_written(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The message says which NPU of which pod is in the way."""
    cluster.add_job("n0")
    cluster.add(pod("train-1", "n1", index=1), npu(5))
    code, _, err = await cluster.run("job/train", f"--out={tmp_path}/hccl.json", "--explain")
    assert code == 1
    said = err.splitlines()
    assert said[0] == "form 1.0: that of Ascend910B"
    assert [line.split() for line in said[1:4]] == [
        ["NODE_RANK", "POD", "NODE", "SUPER", "POD", "RANKS", "NPUS"],
        ["0", "train-0", "n0", "-", "0-0", "0"],
        ["1", "train-1", "n1", "-", "1-1", "5"],
    ]
    (flaw,) = said[5:]
    assert flaw == (
        "npu-dra ranktable: NPU 5 of pod train-1 on node n1: device_ip is missing: over several "
        "servers HCCL needs the IPv4 address of each NPU; hccn_tool sets it"
    )
    assert not (tmp_path / "hccl.json").exists()


async def test_of_many_npus_without_an_address_the_first_is_named(cluster: Cluster) -> None:
    """With their number."""
    cluster.add_job("n0")
    cluster.add(pod("train-1", "n1", index=1), *map(npu, range(9)))
    _, _, err = await cluster.run("job/train")
    assert "NPU 0 of pod train-1 on node n1 and 8 more NPUs: device_ip is missing" in err


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("deployment/train", 2, "what is before the / must be job, jobset, lws or statefulset"),
        ("job/Train", 2, "is no name in jobs"),
        ("job/other", 1, 'jobs.batch "other" not found'),
        ("job/train --pods=2", 2, "--pods: job/train says itself how many pods it has"),
        ("job=train --wait", 2, "--wait: give --pods N, because job=train does not tell it"),
        ("job=none", 1, "no pod in namespace train with the labels job=none runs or waits"),
        ("none", 1, "with the labels none runs or waits; did you mean job/none?"),
        ("lws/other", 1, f"with the labels {LWS}/name=other runs or waits"),
        ("job/train --timeout=0", 2, "'0' is not a number from 1 on"),
        ("job/train --timeout=5", 2, "--timeout=5: has no effect without --wait"),
        ("job/train --framework=mindspore", 2, "--framework=mindspore: has no effect without -o"),
        ("job/train -o env --super-pod-block=4", 2, "--super-pod-block=4: has no effect with -o"),
        ("job/train --out=hccl.txt", 2, "only if its name ends in .json"),
        ("job/train --out={}/none/hccl.json", 2, "/none is no folder in which you may write"),
        ("job/train --out={}/link.json", 2, "a link, folder or device is there"),
    ],
)
async def test_what_is_asked_for_is_wrong(
    cluster: Cluster, tmp_path: Path, line: str, code: int, why: str
) -> None:
    """One line says what, before any wait."""
    (tmp_path / "link.json").symlink_to("hccl.json")
    found, _, err = await cluster.run(*line.format(tmp_path).split())
    assert found == code
    assert why in err


async def test_a_folder_out_of_reach_is_refused_before_any_wait(
    cluster: Cluster, tmp_path: Path
) -> None:
    """No table is lost after an hour."""
    with closed(tmp_path):
        code, _, err = await cluster.run("job/train", f"--out={tmp_path}/hccl.json")
    assert (code, f"{tmp_path} is no folder in which you may write" in err) == (2, True)


async def test_npus_without_a_network_port_are_of_one_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table joins those of several; launchers that need no HCCL between nodes are warned."""
    for at in (0, 1):
        cluster.add(pod(f"train-{at}", f"n{at}", index=at), npu(0, ChipFamily.ASCEND_310P))
    code, out, err = await cluster.run("job=train")
    assert (code, out) == (1, "")
    assert "NPUs of Ascend310P have no network port" in err
    assert "hccn_tool" not in err
    monkeypatch.setenv("POD_NAME", "train-0")
    code, out, err = await cluster.run("job=train", "-o", "env")
    assert (code, "WORLD_SIZE='2'" in out) == (0, True)
    assert err.startswith("warning: NPUs of Ascend310P have no network port")
