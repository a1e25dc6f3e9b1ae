"""An API server with the controllers of a job, and `npu-dra ranktable` that asks it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from dev.rig.kubectl import stand_in
from dev.rig.waiting import HANG_SECONDS
from tests.ranktable.jobs import LWS, Wire, claim, npu, pod
from trio_npu_dra.agent.cli.main import main
from trio_npu_dra.kit.api.pods import PlacedPod
from trio_npu_dra.kit.api.workloads import Job, JobSet, StatefulSet
from trio_npu_dra.lab.standins.api_server import serve_api
from trio_npu_dra.lab.standins.api_state import ApiState

META = {"name": "train", "namespace": "train"}
SELECTOR = {"matchLabels": {"job": "train"}}
CONTROLLERS = (
    Job.model_validate({"metadata": META, "spec": {"parallelism": 2, "selector": SELECTOR}}),
    StatefulSet.model_validate({"metadata": META, "spec": {"replicas": 2, "selector": SELECTOR}}),
    JobSet.model_validate(
        {
            "metadata": META,
            "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"completions": 1}}}]},
        }
    ),
)


@dataclass(frozen=True)
class Cluster:
    """An API server, and the command that asks it."""

    state: ApiState
    capsys: pytest.CaptureFixture[str]

    def add(self, of: PlacedPod, *devices: Wire) -> PlacedPod:
        """A pod with its claim, if it has devices."""
        made = self.state.add(of)
        if devices:
            self.state.add(claim(made, *devices))
        return made

    def add_job(self, *nodes: str, group: int = 0, name: str = "train") -> None:
        """A pod of the job on each of these nodes, with the node's first NPU that is free."""
        for index, node in enumerate(nodes):
            labels = {
                "job": "train",
                "jobset.sigs.k8s.io/jobset-name": "train",
                f"{LWS}/name": "train",
                f"{LWS}/group-index": str(group),
                f"{LWS}/worker-index": str(index),
            }
            of = pod(f"{name}-{index}", node, index=index, labels=labels)
            meta = of.metadata.model_copy(update={"annotations": {f"{LWS}/size": str(len(nodes))}})
            number = nodes[:index].count(node)
            address = f"10.20.{node.removeprefix('n')}.{number}/24"
            self.add(of.with_metadata(meta), npu(number, ips=[address]))

    async def run(self, *words: str) -> tuple[int | str | None, str, str]:
        """The exit code, standard output and standard error of the command."""
        line = ["ranktable", *words, "-n", "train"]

        def run() -> int | str | None:
            try:
                return main(line)
            except SystemExit as end:
                return end.code

        with trio.fail_after(HANG_SECONDS):
            code = await trio.to_thread.run_sync(run)
        return code, *self.capsys.readouterr()

    async def table(self, *words: str) -> Any:
        """The rank table that it prints."""
        code, out, err = await self.run(*words)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
async def cluster(
    tmp_path: Path, nursery: trio.Nursery, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Cluster]:
    """An API server with the controllers of a job of two pods."""
    state = ApiState()
    for one in CONTROLLERS:
        state.add(one)
    await nursery.start(serve_api, state, tmp_path / "api.sock")
    with stand_in(tmp_path, tmp_path / "api.sock"):
        yield Cluster(state, capsys)
