"""The examples of frameworks run as they are, in images that have CANN's layout and no CANN.

`workload_images` says what stands for what. Each program counts its NPUs by a library of the image
that needs one of the Ascend driver, and the loader finds both.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dev.cluster.api import Object
from dev.cluster.driver import NPUS
from tests.e2e.faults import MOVES_PODS, Faults
from tests.e2e.libraries import LIBRARIES
from tests.e2e.space import EXAMPLES, Space, is_running

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

IMAGES = Path(__file__).parent / "workload_images"
LOADED = [
    "loaded /usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so",
    f"loaded {LIBRARIES}/libdcmi.so",
]
"""What a program says of its libraries: CANN's is the image's, the other one is the driver's."""


def example(space: Space, name: str) -> list[Object]:
    """The objects of an example, once the image that they name can be pulled."""
    text = (EXAMPLES / f"{name}.yaml").read_text()
    (image,) = set(re.findall(r"image: (\S+/\S+)", text))
    space.cluster.provide_image(IMAGES, target="cann", name=image)
    return list(yaml.safe_load_all(text))


def wait_log(space: Space, job: str) -> list[str]:
    """Wait until the one pod of a Job has done its work; returns the lines that it wrote."""

    def look() -> str | None:
        for pod in space.pods_of(job):
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            assert phase != "Failed", space.log(name, "main")
            if phase == "Succeeded":
                return str(name)
        return None

    return space.log(space.wait(look, f"the pod of {job} done"), "main").splitlines()


@pytest.mark.parametrize("user", [None, 1000])
def test_pytorch(space: Space, user: int | None) -> None:
    """It finds its NPU as root, which the image says, and as CANN's own user."""
    objects = example(space, "pytorch")
    if user is not None:
        pod = objects[-1]["spec"]["template"]["spec"]
        pod["securityContext"] = {"runAsUser": user, "runAsGroup": user}
    space.apply(*objects)
    assert wait_log(space, "pytorch") == [*LOADED, "1 NPU, sum 1000.0"]
    space.delete("job", "pytorch", foreground=True)


def test_torchrun(space: Space) -> None:
    """Eight processes have an NPU of one ring each."""
    space.apply(*example(space, "torchrun"))
    said = sorted(wait_log(space, "torchrun"))
    assert said == [f"rank {rank} of {NPUS}, sum {NPUS}.0" for rank in range(NPUS)]
    space.delete("job", "torchrun", foreground=True)


def test_mindspore(space: Space) -> None:
    """Both processes have an NPU, and what they wrote is in the pod's log."""
    space.apply(*example(space, "mindspore"))
    said = wait_log(space, "mindspore")
    assert said == [*LOADED, "rank 0 of 2", *LOADED, "rank 1 of 2"]
    space.delete("job", "mindspore", foreground=True)


@pytest.mark.parametrize(("name", "count"), [("vllm", 1), ("vllm-pair", 2)])
def test_vllm(space: Space, name: str, count: int) -> None:
    """It is ready with as many NPUs as it shards the model over, and its Service leads to it."""
    objects = example(space, name)
    (service,) = (each["metadata"]["name"] for each in objects if each["kind"] == "Service")
    space.apply(*objects)

    def look() -> str | None:
        ready = [
            pod["metadata"]["name"]
            for pod in space.pods_of(name)
            if is_running(pod) and pod["status"]["containerStatuses"][0]["ready"]
        ]
        return ready[0] if ready else None

    pod = space.wait(look, f"a pod of {name} ready")
    assert space.log(pod, "main").splitlines()[:2] == LOADED
    assert len(space.seen_npus(pod)) == count

    def leads() -> bool:
        slices = space.cluster.objects(
            "endpointslices", namespace=space.name, selector=f"kubernetes.io/service-name={service}"
        )
        return any(each["conditions"]["ready"] for one in slices for each in one["endpoints"] or [])

    space.wait(leads, f"an endpoint of {name}")
    space.delete("deployment", name, foreground=True)


def checkpoints(space: Space) -> list[Object]:
    """A volume on the node and the claim of the example for it; a test's own, by its namespace."""
    size = {"storage": "1Mi"}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"checkpoints-{space.name}"},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": space.name, "name": "checkpoints"},
            "hostPath": {"path": f"/var/tmp/checkpoints-{space.name}", "type": "DirectoryOrCreate"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "checkpoints"},
        "spec": {
            "storageClassName": "",
            "volumeName": f"checkpoints-{space.name}",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": size},
        },
    }
    return [volume, claim]


def job_status(space: Space) -> Object:
    """What the Job of the example says of its pods."""
    found: Object = (space.get("job", "job-retried") or {})["status"]
    return found


@pytest.mark.since("1.36")
def test_a_job_goes_on_with_another_npu(faults: Faults, space: Space) -> None:
    """Its evicted pod counts as no failure; the next one begins at the checkpoint, and ends it."""
    volume, claim = checkpoints(space)
    space.cluster.api.apply([volume])
    space.apply(claim)
    space.apply_example("job-retried")
    first = space.wait(
        lambda: next(filter(is_running, space.pods_of("job-retried")), None), "a pod"
    )
    name = first["metadata"]["name"]
    space.cluster.wait_ok(lambda: space.execute(name, "cat", "/checkpoints/step"), "a checkpoint")
    assert space.log(name, "main").splitlines() == ["begins at step 0"]
    (made,) = first["status"]["resourceClaimStatuses"]
    (device,) = space.allocated(made["resourceClaimName"])

    faults.begin(device, MOVES_PODS)
    space.wait_gone(name)
    space.wait(lambda: job_status(space).get("succeeded") == 1, "the Job done")
    faults.end(device, MOVES_PODS)
    assert job_status(space).get("failed", 0) == 0
    (second,) = space.pods_of("job-retried")
    begins = space.log(second["metadata"]["name"], "main").splitlines()[0]
    assert int(begins.removeprefix("begins at step ")) > 0
    space.delete("job", "job-retried", foreground=True)
    space.delete("persistentvolumeclaim", "checkpoints")
    space.cluster.remove("persistentvolume", volume["metadata"]["name"])
