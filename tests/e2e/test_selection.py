"""The choice of NPUs for a claim."""

from __future__ import annotations

import pytest

from tests.e2e.space import Space, claim, pod, request

pytestmark = [pytest.mark.cluster, pytest.mark.every_version]

OWN = 'device.attributes["npu.huawei.com"]'
MEMORY = 'device.capacity["npu.huawei.com"].memCapacity'
ALL = {f"npu-{number}" for number in range(8)}

FITTING = {
    "chip-name": (f'{OWN}.chipName == "910B4"', ALL),
    "numa-node": (f"{OWN}.numaNode == 6", {"npu-0", "npu-2"}),
    "standard-numa-node": (
        'device.attributes["resource.kubernetes.io"].numaNode == 4',
        {"npu-4", "npu-6"},
    ),
    "physical-id": (f"{OWN}.physicalId == 5", {"npu-5"}),
    "memory": (f'{MEMORY}.compareTo(quantity("32Gi")) >= 0', ALL),
    "driver-version": (f'{OWN}.driverVersion.compareTo(semver("24.1.0-rc1")) > 0', ALL),
}
"""CEL expressions, and the NPUs that they choose among."""


def test_selectors_that_fit(space: Space) -> None:
    """A CEL expression on a published fact chooses an NPU that has it; a container has them all."""
    claims = [claim(name, request(cel=cel)) for name, (cel, _) in FITTING.items()]
    space.apply(*claims, pod("user", *FITTING))
    space.wait_phase("user")
    for name, (_, fitting) in FITTING.items():
        (device,) = space.allocated(name)
        assert device in fitting, name
    assert len(space.seen_npus("user")) == len(FITTING)
