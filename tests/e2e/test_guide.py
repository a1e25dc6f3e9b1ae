"""The guide's manifests, applied as they are, and our own examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

HERE = Path(__file__).parent
GUIDE = HERE / "guide"
EXAMPLES = HERE.parent.parent / "k8s/examples"
POD = "npu-test-pod"


def assert_sees_its_npu(driver: Driver, space: Space, claim: str) -> None:
    """The guide's pod sees just the NPU of its claim: with npu-smi, and as a device node."""
    names = space.allocated(claim)
    devices = driver.devices()
    assert len(names) == 1
    assert space.seen_npus(POD) == sorted(
        devices[name]["attributes"]["resource.kubernetes.io/pciBusID"]["string"] for name in names
    )
    assert space.davinci_nodes(POD) == [name.replace("npu-", "/dev/davinci") for name in names]


def test_guides_claim_and_pod(driver: Driver, space: Space, notes: list[str]) -> None:
    """DeviceClass, ResourceClaim and pod of the guide: npu-smi in the pod shows the one NPU."""
    for name in ("deviceclass", "resourceclaim", "pod"):
        space.apply_text((GUIDE / f"{name}.yaml").read_text())
    space.wait_phase(POD)
    assert_sees_its_npu(driver, space, "npu-resource")
    notes.append(space.execute(POD, "npu-smi", "info"))


def test_guides_template_pod_with_mounts_of_its_own(driver: Driver, space: Space) -> None:
    """A pod that mounts the driver itself, as the guide's does, runs beside our own mounts."""
    space.apply_text((GUIDE / "deviceclass.yaml").read_text())
    space.apply_text((GUIDE / "template-pod.yaml").read_text())
    pod = space.wait_phase(POD)
    (made,) = pod["status"]["resourceClaimStatuses"]
    assert_sees_its_npu(driver, space, made["resourceClaimName"])
    space.execute(POD, "ls", "/usr/local/Ascend/driver/version.info")


def test_claim_of_the_guide_outlives_its_pod(driver: Driver, space: Space) -> None:
    """A claim of its own can be used by one pod after the other."""
    space.apply_text((GUIDE / "resourceclaim.yaml").read_text())
    for _ in range(2):
        space.apply_text((GUIDE / "pod.yaml").read_text())
        space.wait_phase(POD)
        assert_sees_its_npu(driver, space, "npu-resource")
        space.delete_pod(POD, grace=1)
        driver.wait_without_traces()


@pytest.mark.parametrize(
    "files", [("claim", "pod"), ("claim-template", "pod-with-template")], ids="+".join
)
def test_examples(driver: Driver, space: Space, files: tuple[str, ...]) -> None:
    """The pods of our examples run and see one NPU, without a volume of their own."""
    for name in files:
        space.apply_text((EXAMPLES / f"{name}.yaml").read_text())
    pod = space.wait_phase(POD)
    assert all("projected" in volume for volume in pod["spec"]["volumes"])
    (made,) = pod["status"].get("resourceClaimStatuses") or pod["spec"]["resourceClaims"]
    assert_sees_its_npu(driver, space, made["resourceClaimName"])
