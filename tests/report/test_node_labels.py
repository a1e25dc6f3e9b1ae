"""Which labels follow from a Board."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report.chips import a3, b4, of_950
from trio_npu_dra.agent.report.node_labels import RACK, SERVER, SUPER_POD, board_labels
from trio_npu_dra.ascend.model import Board, Chip

DOMAIN = "npu.huawei.com"


def labels(*chips: Chip, driver_version: str | None = "24.1.rc2") -> dict[str, str]:
    """The labels of a node, those of our own by their names alone."""
    found = board_labels(Board(chips=chips, driver_version=driver_version), DOMAIN)
    return {key.removeprefix(f"{DOMAIN}/"): value for key, value in found.items()}


B4 = {"model": "Ascend910B", "chip": "910B4", "count": "1", "driver-version": "24.1.rc2"}


@pytest.mark.parametrize(
    ("chips", "wanted"),
    [
        ([], {}),
        ([b4(0, gone=True)], {}),
        ([b4(0)], B4),
        ([b4(0), b4(1, gone=True)], B4),
        ([b4(0), b4(1, unlisted=True)], B4 | {"count": "2"}),
        ([b4(0), b4(1, chip_name="910B2")], {**B4, "chip": None, "count": "2"}),
        ([b4(0, chip_name="910 B4")], {**B4, "chip": None}),
        ([a3(0), a3(1, super_pod_id=None)], {"model": "Ascend910A3", SUPER_POD: "7", SERVER: None}),
        ([a3(0), a3(1, super_pod_id=8)], {SUPER_POD: None}),
        ([of_950(0, super_pod_id=0)], {SUPER_POD: "0", RACK: "2", SERVER: "3"}),
    ],
)
def test_what_all_chips_tell_is_a_label(chips: list[Chip], wanted: dict[str, Any]) -> None:
    """What is gone counts no more; what chips disagree on, or no label can say, is left out."""
    found = labels(*chips)
    assert {key: found.get(key) for key in wanted} == wanted
    assert wanted or not found


@pytest.mark.parametrize(
    ("version", "value"),
    [(None, None), ("25.0~rc1", None), ("-1", None), ("1" * 63, "1" * 63), ("1" * 64, None)],
)
def test_a_driver_version_that_no_label_can_have_is_left_out(
    version: str | None, value: str | None
) -> None:
    """The other labels stay."""
    found = labels(b4(0), driver_version=version)
    assert found.pop("driver-version", None) == value
    assert found == {key: text for key, text in B4.items() if key != "driver-version"}


def test_health_changes_no_label() -> None:
    """Each write of the Node wakes all who watch Nodes."""
    chip = b4(0)
    health = replace(chip.health, network="port down", unmonitored="silent")
    assert labels(replace(chip, health=health, device_share=True, vnpus=(100,))) == labels(chip)
