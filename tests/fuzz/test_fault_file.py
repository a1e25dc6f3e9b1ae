"""Any content of faults.json when the daemon starts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hypothesis import assume, example, given

from dev.fuzz.values import documents, encoded, expanded, is_json, spoilt
from tests.claims.node import npu
from trio_npu_dra.agent.devices.taints import TaintPolicy
from trio_npu_dra.agent.report.news import MESSAGE_LIMIT, news
from trio_npu_dra.ascend.fault_memory import NodeFaults
from trio_npu_dra.ascend.health_sample import HealthSample
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, FaultLevel

NOW: Final = 1.8e9
SEPARATED: Final = {"since": 1.7e9, "occurred": [1.7e9], "separated": 1.7e9}
GOOD: Final[dict[str, Any]] = {
    "version": 1,
    "chips": {"npu-0": {"80E01801": SEPARATED, "81078603": {"since": 1.7e9, "text": "words"}}},
    "places": {"npu-0": "npu-0"},
}
POLICY: Final = TaintPolicy.parse("", domain="npu.huawei.com")


@given(content=documents(GOOD))
@example(content=b'{"chips": {"npu-0": {"81078603": {"since": -1e20}}}}')
@example(content=b'{"chips": {"npu-0": {"81078603": {"since": NaN}}}}')
@example(content=b'{"chips": {"npu-0": {"81078603": {"since": -Infinity}}}}')
def test_any_file_is_read_or_replaced(place: Path, content: bytes) -> None:
    """The accepted part can be published, and is written so that it can be read again."""
    (place / "faults.json").write_bytes(expanded(content))
    faults = NodeFaults(place, clock=lambda: NOW)
    _tell(faults)
    for number in (0, 1):
        faults.of(npu(number)).take_confirmed(
            HealthSample(codes={0x80E01801: "words", 0x81078603: ""}), NOW
        )
    _tell(faults)
    faults.save()
    assert faults.is_saved
    again = NodeFaults(place, clock=lambda: NOW)
    assert again.is_saved
    assert [again.of(npu(n)).memory for n in (0, 1)] == [faults.of(npu(n)).memory for n in (0, 1)]


@given(codes=spoilt(GOOD["chips"]["npu-0"]))
@example(codes={"81078603": {"since": 1.7e12}})
@example(codes={"81078603": {"since": 1.7e12, "separated": "never"}})
@example(codes={"no code": {}})
def test_a_chip_that_is_not_understood_costs_no_other(place: Path, codes: Any) -> None:
    """The other chip stays separated."""
    document = {"version": 1, "chips": {"npu-0": codes, "npu-1": {"80E01801": SEPARATED}}}
    assume(is_json(content := encoded(document)))
    (place / "faults.json").write_bytes(content)
    faults = NodeFaults(place, clock=lambda: NOW)
    assert faults.of(npu(1)).health(NOW).level is FaultLevel.MANUALLY_SEPARATE_NPU
    assert faults.of(npu(1)).memory[0x80E01801].separated == SEPARATED["separated"]
    _tell(faults)


def _tell(faults: NodeFaults) -> None:
    """Publish what is known, as taints and Events."""
    for number in (0, 1):
        chip = faults.of(npu(number))
        unhealthy = replace(npu(number), health=chip.health(NOW))
        POLICY.taints(unhealthy.health)
        for one in news(EMPTY_BOARD, Board(chips=(unhealthy,)), since=0.0):
            assert len(one.message) <= MESSAGE_LIMIT
        assert chip.next_change is None or math.isfinite(chip.next_change)
