"""Promises of the taints that health makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trio_npu_dra.agent.devices.taints import TaintEffect, TaintPolicy
from trio_npu_dra.ascend.model import HEALTHY, ChipHealth, Fault, FaultLevel
from trio_npu_dra.kit.base.errors import ConfigError

POLICY = TaintPolicy(domain="npu.huawei.com")


def fault(level: FaultLevel, since: float = 0.0) -> Fault:
    """A fault of that level."""
    return Fault(code=1, level=level, rule="", since=since)


def effects(health: ChipHealth, policy: TaintPolicy = POLICY) -> dict[str, str]:
    """The taints' effects by key, without the domain."""
    return {taint.key.partition("/")[2]: taint.effect for taint in policy.taints(health)}


@pytest.mark.parametrize(
    ("level", "effect"),
    [
        (FaultLevel.NORMAL, None),
        (FaultLevel.NOT_HANDLE, None),
        (FaultLevel.SUB_HEALTH, "None"),
        (FaultLevel.RESTART_REQUEST, "NoSchedule"),
        (FaultLevel.RESTART_BUSINESS, "NoSchedule"),
        (FaultLevel.FREE_RESTART_NPU, "NoSchedule"),
        (FaultLevel.RESTART_NPU, "NoExecute"),
        (FaultLevel.PRE_SEPARATE_NPU, "NoSchedule"),
        (FaultLevel.SEPARATE_NPU, "NoExecute"),
        (FaultLevel.MANUALLY_SEPARATE_NPU, "NoExecute"),
    ],
)
def test_each_level_has_its_effect(level: FaultLevel, effect: str | None) -> None:
    """The defaults; an NPU is admitted when no pod would be refused."""
    health = ChipHealth(faults=(fault(level),) if level is not FaultLevel.NORMAL else ())
    assert effects(health).get("fault") == effect
    assert (POLICY.kept_taints(health, kept=()) == ()) == (effect in {None, "None"})


def test_the_worst_fault_gives_the_one_taint_and_the_oldest_of_its_level_the_time() -> None:
    """A minor event never masks a worse one, and one more fault of a level moves no time."""
    worst = FaultLevel.SEPARATE_NPU
    health = ChipHealth(
        faults=(fault(worst, 50), fault(worst, 20), fault(FaultLevel.SUB_HEALTH, 1))
    )
    (taint,) = POLICY.taints(health)
    assert (taint.value, taint.time_added) == ("SeparateNPU", "1970-01-01T00:00:20Z")


def test_the_strongest_effect_decides_not_the_level_alone() -> None:
    """A fault that drains the NPU is not masked by one of a worse level that only closes it."""
    health = ChipHealth(
        faults=(fault(FaultLevel.PRE_SEPARATE_NPU, 5), fault(FaultLevel.RESTART_NPU, 7))
    )
    (taint,) = POLICY.taints(health)
    assert (taint.value, taint.effect) == ("RestartNPU", "NoExecute")
    assert taint.time_added == "1970-01-01T00:00:07Z"
    policy = TaintPolicy.parse("SeparateNPU=None", domain="npu.huawei.com")
    health = ChipHealth(faults=(fault(FaultLevel.SEPARATE_NPU), fault(FaultLevel.RESTART_BUSINESS)))
    assert effects(health, policy) == {"fault": "NoSchedule"}
    assert policy.kept_taints(health, kept=()) is None


def test_a_fault_that_has_not_settled_evicts_no_pod() -> None:
    """It keeps new claims away; one that has settled decides, however much milder it is."""
    young = replace(fault(FaultLevel.SEPARATE_NPU, 5), is_settled=False)
    old = fault(FaultLevel.RESTART_NPU, 7)
    assert effects(ChipHealth(faults=(young,))) == {"fault": "NoSchedule"}
    (taint,) = POLICY.taints(ChipHealth(faults=(young, old)))
    assert (taint.value, taint.effect) == ("RestartNPU", "NoExecute")


def test_silence_and_network_are_taints_of_their_own() -> None:
    """Beside the fault's; their times are the API server's."""
    health = ChipHealth(
        faults=(fault(FaultLevel.RESTART_NPU),), unmonitored="busy", network="RoCE port: fault (5)"
    )
    assert effects(health) == {
        "fault": "NoExecute",
        "unmonitored": "NoSchedule",
        "network": "NoSchedule",
    }
    assert [taint.time_added for taint in POLICY.taints(health)][1:] == [None, None]


def test_an_npu_that_leaves_gets_no_new_claims() -> None:
    """Where the API server does not keep the taint, it is not published."""
    (taint,) = POLICY.taints(HEALTHY, leaving=True)
    assert (taint.key, taint.value, taint.effect) == ("npu.huawei.com/leaving", None, "NoSchedule")
    assert POLICY.kept_taints(HEALTHY, kept=frozenset(TaintEffect), leaving=True) == (taint,)
    assert POLICY.kept_taints(HEALTHY, kept=(), leaving=True) is None


def test_the_operator_changes_single_effects() -> None:
    """What is not named keeps its default."""
    policy = TaintPolicy.parse("SeparateNPU=NoSchedule,Network=None", domain="npu.huawei.com")
    health = ChipHealth(faults=(fault(FaultLevel.SEPARATE_NPU),), network="down")
    assert effects(health, policy) == {"fault": "NoSchedule", "network": "None"}
    assert effects(ChipHealth(unmonitored="x"), policy) == {"unmonitored": "NoSchedule"}
    assert TaintPolicy.parse("", domain="d") == TaintPolicy(domain="d")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Separate=NoSchedule", "no level 'Separate'; there are SubHealthFault"),
        ("NormalNPU=NoSchedule", "no level 'NormalNPU'"),
        ("SeparateNPU=Never", "no effect 'Never'; there are None, NoSchedule, NoExecute"),
        ("SeparateNPU", "no effect ''"),
    ],
)
def test_a_wrong_word_is_named(text: str, words: str) -> None:
    """With what there is instead."""
    with pytest.raises(ConfigError, match=words):
        TaintPolicy.parse(text, domain="d")


def test_what_the_policy_does_not_have_taints_nothing() -> None:
    """Neither faults nor silence nor the network."""
    health = ChipHealth(
        faults=(fault(FaultLevel.SEPARATE_NPU),), unmonitored="busy", network="down"
    )
    assert TaintPolicy(domain="d.io", effects={}).taints(health) == ()


def test_a_mild_taint_can_be_done_without_and_a_severe_one_cannot() -> None:
    """Of one NPU, too: what is kept is published only if nothing that keeps pods away is lost."""
    policy = TaintPolicy.parse("Network=None", domain="npu.huawei.com")
    health = ChipHealth(faults=(fault(FaultLevel.SEPARATE_NPU),), network="down")
    severe, mild = policy.taints(health)
    assert policy.kept_taints(health, kept=frozenset(TaintEffect)) == (severe, mild)
    assert policy.kept_taints(health, kept={TaintEffect.NO_EXECUTE}) == (severe,)
    assert policy.kept_taints(health, kept={TaintEffect.NONE}) is None
    assert policy.kept_taints(ChipHealth(network="down"), kept={TaintEffect.NO_EXECUTE}) == ()
