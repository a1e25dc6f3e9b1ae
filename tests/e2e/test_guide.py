"""The guide's manifests, applied as they are, and our own examples."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.cluster.driver import Driver
from tests.e2e.space import Space

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

GUIDE = Path(__file__).parent / "guide"
POD = "npu-test-pod"


def assert_sees_its_npu(driver: Driver, space: Space, claim: str) -> None:
    """The guide's pod sees just the NPU of its claim: with npu-smi, and as a device node."""
    (name,) = space.allocated(claim)
    assert space.seen_npus(POD) == [driver.bus(name)]
    assert space.davinci_nodes(POD) == [name.replace("npu-", "/dev/davinci")]


def test_guides_claim_and_pods(driver: Driver, space: Space, notes: list[str]) -> None:
    """DeviceClass, ResourceClaim and pod of the guide: npu-smi in the pod shows the one NPU.

    One pod after the other can use the claim.
    """
    for name in ("deviceclass", "resourceclaim"):
        space.apply_text((GUIDE / f"{name}.yaml").read_text())
    for _ in range(2):
        space.apply_text((GUIDE / "pod.yaml").read_text())
        space.wait_phase(POD)
        assert_sees_its_npu(driver, space, "npu-resource")
        notes.append(space.execute(POD, "npu-smi", "info"))
        space.delete_pod(POD, grace=1)
        driver.wait_without_traces()


def test_guides_template_pod_with_mounts_of_its_own(driver: Driver, space: Space) -> None:
    """A pod that mounts the driver itself, as the guide's does, runs beside our own mounts."""
    space.apply_text((GUIDE / "deviceclass.yaml").read_text())
    space.apply_text((GUIDE / "template-pod.yaml").read_text())
    pod = space.wait_phase(POD)
    (made,) = pod["status"]["resourceClaimStatuses"]
    assert_sees_its_npu(driver, space, made["resourceClaimName"])
    space.execute(POD, "ls", "/usr/local/Ascend/driver/version.info")


@pytest.mark.parametrize(
    "files", [("claim", "pod"), ("claim-template", "pod-with-template")], ids="+".join
)
def test_examples(driver: Driver, space: Space, files: tuple[str, ...]) -> None:
    """The pods of our examples run and see one NPU, without a volume of their own."""
    for name in files:
        space.apply_example(name)
    pod = space.wait_phase(POD)
    assert all("projected" in volume for volume in pod["spec"]["volumes"])
    (made,) = pod["status"].get("resourceClaimStatuses") or pod["spec"]["resourceClaims"]
    assert_sees_its_npu(driver, space, made["resourceClaimName"])
