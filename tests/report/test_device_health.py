"""A Board as messages of the kubelet's health stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.rig.boards import a3, die, partition, split
from dev.site.unhealthy_boards import board, fault, npu
from tests.holds.holding import hold
from trio_npu_dra.agent.holds.availability import available
from trio_npu_dra.agent.report.device_health import device_health
from trio_npu_dra.ascend.model import Chip, FaultLevel
from trio_npu_dra.ascend.offers import offers
from trio_npu_dra.kit.base.health import HealthState
from trio_npu_dra.kit.kubelet.device_health import MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("one", "state", "message"),
    [
        (npu(3), HealthState.HEALTHY, ""),
        (npu(3, fault()), HealthState.UNHEALTHY, "80E01801 HBM ECC (RestartBusiness, fault table)"),
        (
            npu(3, fault(level=FaultLevel.SUB_HEALTH)),
            HealthState.HEALTHY,
            "80E01801 HBM ECC (SubHealthFault, fault table)",
        ),
        (npu(3, unmonitored="no answer in 2 s"), HealthState.UNKNOWN, "no answer in 2 s"),
        (
            npu(3, fault(text=""), unmonitored="booting", network="RoCE port: fault (5)"),
            HealthState.UNHEALTHY,
            "80E01801 (RestartBusiness, fault table); booting; RoCE port: fault (5)",
        ),
    ],
)
def test_each_npu_is_told_with_code_words_and_level(
    one: Chip, state: HealthState, message: str
) -> None:
    """What a pod's owner sees in the pod's status."""
    (told,) = device_health(offers(board(one)), "node-a")

    assert (told.pool, told.device) == ("node-a", "npu-3")
    assert (told.state, told.message) == (state, message)


def test_a_long_message_ends_between_two_faults() -> None:
    """As many faults as the kubelet keeps, worst first, and how many more there are."""
    faults = (fault(code, text="x" * 100) for code in range(128))
    (told,) = device_health(offers(board(npu(3, *faults))), "node-a")

    assert 900 < len(told.message) <= MESSAGE_LIMIT
    named = told.message.count("fault table")
    assert told.message.endswith(f"fault table); and {128 - named} more")


def test_one_fault_with_endless_words_is_cut() -> None:
    """The code and the beginning are kept."""
    (told,) = device_health(offers(board(npu(3, fault(text="x" * 2000)))), "node-a")

    assert len(told.message) == MESSAGE_LIMIT
    assert told.message.startswith("80E01801 xxx")
    assert told.message.endswith("...")


def test_a_module_is_as_its_worst_die() -> None:
    """Which one it is, is in the message."""
    dies = (die(2), replace(die(3), health=npu(3, fault()).health))
    (told,) = device_health(offers(a3(*dies)), "node-a")
    assert (told.device, told.state) == ("module-1", HealthState.UNHEALTHY)
    assert told.message == "80E01801 npu-3: HBM ECC (RestartBusiness, fault table)"


def test_partitions_are_told_of_one_by_one() -> None:
    """Each has the fault of its chip, and one that is not there any more its own."""
    chip = split(npu(3, fault()), partition(148), partition(149))
    told = device_health(offers(board(chip)), "node-a")
    assert [(one.device, one.state) for one in told] == [
        ("npu-3-vnpu-148", HealthState.UNHEALTHY),
        ("npu-3-vnpu-149", HealthState.UNHEALTHY),
    ]
    lost = available(board(npu(3)), [hold("npu-3-vnpu-148", 3, vnpu=148)])
    (one,) = device_health(lost, "node-a")
    assert one.state is HealthState.UNHEALTHY
    assert "the vNPU does not exist any more" in one.message
