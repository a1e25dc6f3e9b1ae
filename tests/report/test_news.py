"""What is reported of two Boards, and what is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dev.rig.boards import a3, die
from dev.site.unhealthy_boards import BEGAN, board, fault, npu, separated
from tests.holds.holding import hold
from trio_npu_dra.agent.report.news import Reason, news
from trio_npu_dra.ascend.dcmi.types import MultiDiePolicy
from trio_npu_dra.ascend.faults import CARD_DROPPED
from trio_npu_dra.ascend.model import EMPTY_BOARD, Board, ChipHealth, FaultLevel

WELL = board(npu(3))
UNHEALTHY = board(npu(3, fault()))
WORSE = board(npu(3, fault(level=FaultLevel.RESTART_NPU)))
SUB = board(npu(3, fault(0x80000001, FaultLevel.SUB_HEALTH)))
MINOR = board(npu(3, fault(0x80000002, FaultLevel.NOT_HANDLE)))
SEPARATED = board(npu(3, separated()))
TWO = board(npu(3, fault(), fault(0x80000001)))
SILENT = board(npu(3, unmonitored="timed out"))
DOUBTED = board(
    replace(npu(3), health=ChipHealth(unmonitored="an alarm without a code", is_doubt=True))
)
UNPLUGGED = board(npu(3, network="RoCE port: unreachable (3)"))


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        (WELL, WELL, []),
        (WELL, UNHEALTHY, [Reason.FAULT]),
        (UNHEALTHY, UNHEALTHY, []),
        (UNHEALTHY, WORSE, [Reason.FAULT]),
        (WORSE, UNHEALTHY, []),
        (UNHEALTHY, TWO, [Reason.FAULT]),
        (TWO, UNHEALTHY, []),
        (UNHEALTHY, WELL, [Reason.RECOVERED]),
        (WELL, SUB, [Reason.FAULT]),
        (WELL, MINOR, []),
        (UNHEALTHY, MINOR, [Reason.RECOVERED]),
        (MINOR, WELL, []),
        (UNHEALTHY, SEPARATED, [Reason.SEPARATED]),
        (WELL, board(npu(3, separated(), fault(1))), [Reason.SEPARATED, Reason.FAULT]),
        (SEPARATED, WELL, [Reason.RECOVERED]),
        (WELL, SILENT, [Reason.UNMONITORED]),
        (SILENT, WELL, [Reason.RECOVERED]),
        (SILENT, UNHEALTHY, [Reason.FAULT]),
        (UNHEALTHY, board(npu(3, fault(), unmonitored="timed out")), [Reason.UNMONITORED]),
        (WELL, DOUBTED, []),
        (DOUBTED, WELL, []),
        (DOUBTED, SILENT, [Reason.UNMONITORED]),
        (DOUBTED, UNHEALTHY, [Reason.FAULT]),
        (WELL, UNPLUGGED, []),
        (UNPLUGGED, WELL, []),
        (WELL, EMPTY_BOARD, []),
    ],
)
def test_what_comes_worsens_or_ends_is_said_once(
    before: Board, after: Board, reasons: list[Reason]
) -> None:
    """A fault, a higher level, a separation, silence, and the end of all of it."""
    found = news(before, after, since=0)

    assert [one.reason for one in found] == reasons
    assert {one.about for one in found} <= {"npu-3"}
    assert {node for one in found for node in one.nodes} <= {"/dev/davinci3"}


@pytest.mark.parametrize(
    ("after", "reasons"),
    [
        (UNHEALTHY, [Reason.FAULT]),
        (SEPARATED, [Reason.SEPARATED]),
        (board(npu(3, fault(since=BEGAN - 3600))), []),
        (SILENT, []),
        (WELL, []),
    ],
)
def test_a_start_says_what_began_since_and_nothing_older(
    after: Board, reasons: list[Reason]
) -> None:
    """A restart repeats nothing that an earlier daemon has reported."""
    assert [one.reason for one in news(EMPTY_BOARD, after, since=BEGAN - 1)] == reasons


def test_a_message_has_code_words_level_rule_and_time() -> None:
    """All that an operator needs is in the line, and how to take a separation back."""
    (said,) = news(WELL, UNHEALTHY, since=0)
    assert said.message == (
        "npu-3: 80E01801 HBM ECC (RestartBusiness, fault table), since 2026-11-21T17:01:00Z"
    )
    (said,) = news(WELL, SEPARATED, since=0)
    assert said.message == (
        "npu-3: 80E01801 HBM ECC (ManuallySeparateNPU, 2 times in 24 h), "
        "since 2026-11-21T17:01:00Z; to return it to service, run `npu-dra health release npu-3`"
    )


def test_news_of_a_die_name_the_module_that_it_is_handed_out_as() -> None:
    """As it is offered, or as it is still held."""
    unhealthy = replace(die(3), health=npu(3, fault()).health)
    before, after = a3(die(2), die(3)), a3(die(2), unhealthy)
    (said,) = news(before, after, since=0)
    assert said.message.startswith("npu-3 of module-1: 80E01801")
    (said,) = news(before, after, [hold("npu-3", 3)], since=0)
    assert said.message.startswith("npu-3: 80E01801")


def test_a_chip_that_is_gone_is_said_as_a_fault_and_then_as_well_again() -> None:
    """Its holder gets the Event too."""
    gone = board(replace(npu(3, fault(CARD_DROPPED, FaultLevel.SEPARATE_NPU)), gone=True))
    (said,) = news(WELL, gone, since=0)
    assert (said.reason, said.nodes) == (Reason.FAULT, frozenset({"/dev/davinci3"}))
    assert said.message.startswith("npu-3: 40F84E00")
    (said,) = news(gone, WELL, since=0)
    assert said.reason is Reason.RECOVERED


def test_a_policy_that_changes_is_said_of_the_node_with_what_stays() -> None:
    """Old and new policy, and the devices that are no offer once they are released."""
    union, independent = (a3(*map(die, range(4)), policy=policy) for policy in MultiDiePolicy)
    (said,) = news(union, independent, [hold("module-1", 2, 3)], since=0)
    assert (said.reason, said.nodes) == (Reason.POLICY_CHANGED, frozenset())
    assert said.message == (
        "the multi-die policy was union and is independent now; module-1 stays until it is released"
    )
    (said,) = news(independent, union, since=0)
    assert said.message == "the multi-die policy was independent and is union now"
    assert news(EMPTY_BOARD, union, since=0) == ()
    assert news(union, EMPTY_BOARD, since=0) == ()
