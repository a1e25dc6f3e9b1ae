"""The guide's own DaemonSet with our image: its flags, its mounts, nothing else of the host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dev.cluster import deploy
from dev.cluster.driver import IMAGE, Driver
from tests.e2e.space import Space, placed

pytestmark = pytest.mark.cluster

MANIFEST = Path(__file__).parent / "guide/daemonset.yaml"


@pytest.fixture
def guides(driver: Driver) -> Iterator[Driver]:
    """The driver as the guide deploys it, on the board that our manifests have laid out."""
    driver.remove()
    # As the guide's comment asks: "modify image according to the actual image name".
    text = MANIFEST.read_text(encoding="utf-8")
    manifest = re.sub(r"(?<=image: docker\.io/)\S+", IMAGE, text)
    objects = list(yaml.safe_load_all(manifest))
    for about in objects:
        if about["kind"] == "DaemonSet":  # its mounts need the Ascend driver, which others lack
            placed(about["spec"]["template"], driver.node)
    driver.cluster.api.apply(objects)
    driver.wait_rolled_out()
    yield driver
    driver.remove()
    deploy.apply(driver.cluster)
    driver.wait_rolled_out()


def test_guides_daemonset_publishes_the_board_and_prepares_pods(
    guides: Driver, space: Space
) -> None:
    """All chips are there, without the facts that only the board's own /sys has.

    A pod gets its NPU, with the driver's files that the guide's mounts show.
    """

    def published() -> bool:
        return all("numaNode" not in one["attributes"] for one in guides.devices().values())

    guides.cluster.wait(published, "the slice of the guide's driver")
    attributes = guides.devices()["npu-0"]["attributes"]
    assert attributes["chipName"] == {"string": "910B4"}
    assert attributes["topologyGroup"] == {"string": "ring-0"}

    space.start("user")
    assert len(space.seen_npus("user")) == 1
    assert len(space.davinci_nodes("user")) == 1
    space.delete_pod("user")
    guides.wait_without_traces()
