"""For each alert: series that make it fire, after how long, and similar ones that must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Series = Mapping[str, str]
"""Values by series, one a minute, in promtool's notation: `1+0x20` is a 1 and then 20 more."""

ON = "1+0x200"
OFF = "0+0x200"

JOB = 'job="ascend-npu-dra-kubeletplugin"'
NPU = 'node="n1", device="npu-3"'
OLD, NEW = 'node="n1", pod="old"', 'node="n1", pod="new"'
CLAIM = 'claim_namespace="ml", claim="train"'
POD = 'claim="", pod_namespace="ml", pod_name="train-0"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One alert.

    Attributes:
        alert: Its name.
        series: The series that make it fire.
        minutes: When it fires; a minute earlier it does not.
        labels: Its labels, besides name and severity.
        value: The value in its text.
        quiet: Series under which it never fires, by description.
    """

    alert: str
    series: Series
    minutes: int
    labels: Mapping[str, str]
    value: str = "1"
    quiet: Mapping[str, Series] = field(default_factory=dict)


def level(name: str, *, where: str = NPU, values: str = ON) -> Series:
    """An NPU's level."""
    return {f'npu_dra_npu_fault_level{{{where}, level="{name}"}}': values}


def holder(claim: str, *, where: str = NPU) -> Series:
    """The holder of an NPU."""
    return {f"npu_dra_npu_memory_size_bytes{{{where}, {claim}}}": "34359738368+0x200"}


HELD = holder(CLAIM)
ELSEWHERE = holder(CLAIM, where='node="n2", device="npu-3"')
FREE = holder('claim_namespace="", claim=""')

_PREPARES = 'npu_dra_claim_operations_total{node="n1", operation="prepare"}'
_ERRORS = 'npu_dra_claim_errors_total{node="n1", operation="prepare", reason="DeviceHeld"}'
_BUCKET = 'npu_dra_claim_call_duration_seconds_bucket{node="n1", operation="prepare", le="%s"}'
_START = f"process_start_time_seconds{{{JOB}, node='n1'}}"

_DOUBLE_BIT = "npu_dra_npu_hbm_double_bit_errors_total"

_NODE = {"node": "n1"}
_DEVICE = {"node": "n1", "device": "npu-3"}
_HOLDER = {"claim_namespace": "ml", "claim": "train"}
_POD = {"pod_namespace": "ml", "pod_name": "train-0"}


def calls(*, fast: str, all_: str) -> Series:
    """Durations of prepare calls: the number under a second, and of all."""
    return {_BUCKET % "1": fast, _BUCKET % "2.5": all_, _BUCKET % "+Inf": all_}


CASES: Sequence[Case] = (
    Case(
        alert="NpuDraDown",
        series={f"up{{{JOB}, {OLD}}}": OFF},
        minutes=5,
        labels=_NODE,
        value="0",
        quiet={
            "an update whose new pod does not start": {
                f"up{{{JOB}, {OLD}}}": ON,
                f"up{{{JOB}, {NEW}}}": OFF,
            },
            "a restart": {f"up{{{JOB}, {OLD}}}": "1+0x20 0+0x3 1+0x100"},
            "something else is down": {'up{job="other", node="n1"}': OFF},
        },
    ),
    Case(
        alert="NpuDraAbsent",
        series={'up{job="other", node="n1"}': ON},
        minutes=10,
        labels={"job": "ascend-npu-dra-kubeletplugin"},
        quiet={
            "one node is left": {f"up{{{JOB}, node='n2'}}": ON},
            "it is there and down": {f"up{{{JOB}, node='n2'}}": OFF},
        },
    ),
    Case(
        alert="NpuDraRestarting",
        series={_START: "100+0x9 200+0x4 300+0x4 400+0x100"},
        minutes=20,
        labels=_NODE,
        value="3",
        quiet={
            "two restarts": {_START: "100+0x9 200+0x4 300+0x150"},
            "a restart in 20 minutes": {_START: "100+0x19 200+0x19 300+0x19 400+0x19"},
            "another job restarts": {
                'process_start_time_seconds{job="other", node="n1"}': "1+1x200"
            },
        },
    ),
    Case(
        alert="NpuDraNotRegistered",
        series={f"npu_dra_registered{{{OLD}}}": OFF},
        minutes=5,
        labels=_NODE,
        value="0",
        quiet={
            "a start": {f"npu_dra_registered{{{OLD}}}": "0+0x3 1+0x100"},
            "an update": {
                f"npu_dra_registered{{{OLD}}}": ON,
                f"npu_dra_registered{{{NEW}}}": OFF,
            },
        },
    ),
    Case(
        alert="NpuDraPrepareErrors",
        # From minute 1 on there is a rate, which stays.
        series={_PREPARES: "0+2x200", _ERRORS: "0+1x200"},
        minutes=11,
        labels=_NODE | {"reason": "DeviceHeld"},
        quiet={
            "one in ten": {_PREPARES: "0+10x200", _ERRORS: "0+1x200"},
            "a single error long ago": {_PREPARES: "0+2x200", _ERRORS: "0+1x1 1+0x198"},
            "nothing is prepared": {_PREPARES: "5+0x200", _ERRORS: "5+0x200"},
            "errors of unprepare": {
                _PREPARES: "0+2x200",
                _ERRORS.replace("prepare", "unprepare"): "0+2x200",
            },
        },
    ),
    Case(
        alert="NpuDraPrepareSlow",
        series=calls(fast="0+1x200", all_="0+2x200"),
        minutes=16,
        labels=_NODE,
        quiet={
            "all fast": calls(fast="0+2x200", all_="0+2x200"),
            "one slow call": calls(fast="0+1x200", all_="0+1x20 22+1x179"),
            "no calls": calls(fast="5+0x200", all_="6+0x200"),
        },
    ),
    Case(
        alert="NpuDraFaultsPolled",
        series={f"npu_dra_fault_events_subscribed{{{OLD}}}": OFF},
        minutes=15,
        labels=_NODE,
        quiet={
            "a node without an Ascend driver": {f"npu_dra_registered{{{OLD}}}": ON},
            "an update": {
                f"npu_dra_fault_events_subscribed{{{OLD}}}": ON,
                f"npu_dra_fault_events_subscribed{{{NEW}}}": OFF,
            },
        },
    ),
    Case(
        alert="NpuDraPoolOutdated",
        series={f"npu_dra_pool_current{{{OLD}}}": OFF},
        minutes=10,
        labels=_NODE,
        quiet={
            "one that waits for an older one": {
                f"npu_dra_pool_current{{{OLD}}}": ON,
                f"npu_dra_pool_current{{{NEW}}}": OFF,
            },
            "a few minutes without the API server": {
                f"npu_dra_pool_current{{{OLD}}}": "1+0x5 0+0x8 1+0x100"
            },
        },
    ),
    Case(
        alert="NpuDraServerDropsTaints",
        series={f"npu_dra_server_keeps_taints{{{OLD}}}": OFF},
        minutes=15,
        labels={},
        quiet={
            "it keeps them": {f"npu_dra_server_keeps_taints{{{OLD}}}": ON},
            "not known yet": {f"npu_dra_registered{{{OLD}}}": ON},
        },
    ),
    Case(
        alert="NpuDraCallsHang",
        series={f"npu_dra_dcmi_calls_written_off{{{OLD}}}": "2+0x200"},
        minutes=5,
        labels=_NODE,
        value="2",
        quiet={
            "a call that returns late": {
                f"npu_dra_dcmi_calls_written_off{{{OLD}}}": "0+0x5 1+0x3 0+0x100"
            }
        },
    ),
    Case(
        alert="NpuDraNoCallsLeft",
        series={f"npu_dra_dcmi_calls_written_off{{{OLD}}}": "257+0x200"},
        minutes=1,
        labels=_NODE,
        quiet={"one is left": {f"npu_dra_dcmi_calls_written_off{{{OLD}}}": "256+0x200"}},
    ),
    *(
        Case(
            alert="NpuUnfitHeld",
            series={**level(name), **HELD},
            minutes=5,
            labels=_DEVICE | _HOLDER | {"level": name},
            quiet={
                "free": {**level(name), **FREE},
                "evicted": {**level(name, values="0+0x5 1+0x3 0+0x100"), **HELD},
                "another NPU is held": {
                    **level(name),
                    **holder(CLAIM, where='node="n1", device="npu-4"'),
                },
                "the same NPU of another node is held": {**level(name), **ELSEWHERE},
            },
        )
        for name in ("RestartNPU", "SeparateNPU", "ManuallySeparateNPU")
    ),
    Case(
        alert="NpuUnfitHeld",
        # Both pods of an update see it: one alert, and no error.
        series={
            **level("SeparateNPU", where=f'{OLD}, device="npu-3"'),
            **level("SeparateNPU", where=f'{NEW}, device="npu-3"'),
            **holder(CLAIM, where=f'{OLD}, device="npu-3"'),
            **holder(CLAIM, where=f'{NEW}, device="npu-3"'),
        },
        minutes=5,
        labels=_DEVICE | _HOLDER | {"level": "SeparateNPU"},
    ),
    Case(
        alert="NpuUnfitHeld",
        series={**level("SeparateNPU"), **holder(POD)},
        minutes=5,
        labels=_DEVICE | _POD | {"level": "SeparateNPU"},
    ),
    Case(
        alert="NpuFaultHeld",
        series={**level("RestartRequest"), **holder(POD)},
        minutes=10,
        labels=_DEVICE | _POD | {"level": "RestartRequest"},
    ),
    *(
        Case(
            alert="NpuFaultHeld",
            series={**level(name), **HELD},
            minutes=10,
            labels=_DEVICE | _HOLDER | {"level": name},
            quiet={
                "free": {**level(name), **FREE},
                "over": {**level(name, values=OFF), **HELD},
                "the same NPU of another node is held": {**level(name), **ELSEWHERE},
            },
        )
        for name in ("RestartRequest", "RestartBusiness", "FreeRestartNPU", "PreSeparateNPU")
    ),
    *(
        Case(
            alert="NpuFaultFree",
            series={**level(name), **FREE, **ELSEWHERE},
            minutes=15,
            labels=_DEVICE | {"level": name},
            quiet={
                "held": {**level(name), **HELD},
                "a pod has it": {**level(name), **holder(POD)},
                "over": {**level(name, values="0+0x5 1+0x10 0+0x100"), **FREE},
            },
        )
        for name in ("RestartRequest", "SeparateNPU", "ManuallySeparateNPU")
    ),
    Case(
        alert="NpuFaultFree",
        # Its memory is unknown.
        series=level("SeparateNPU"),
        minutes=15,
        labels=_DEVICE | {"level": "SeparateNPU"},
        quiet={
            name: {**level(name), **FREE}
            for name in ("NormalNPU", "NotHandleFault", "SubHealthFault")
        },
    ),
    Case(
        alert="NpuSubHealth",
        series=level("SubHealthFault"),
        minutes=60,
        labels=_DEVICE,
        quiet={"a fault of no account": level("NotHandleFault")},
    ),
    Case(
        alert="NpuUnmonitored",
        series={f"npu_dra_npu_unmonitored{{{NPU}}}": ON},
        minutes=10,
        labels=_DEVICE,
        quiet={"a reset": {f"npu_dra_npu_unmonitored{{{NPU}}}": "0+0x5 1+0x3 0+0x100"}},
    ),
    Case(
        alert="NpuNetworkDown",
        series={f"npu_dra_npu_network_fault{{{NPU}}}": ON},
        minutes=5,
        labels=_DEVICE,
        quiet={"a link that comes back": {f"npu_dra_npu_network_fault{{{NPU}}}": "1+0x3 0+0x9"}},
    ),
    Case(
        alert="NpuHot",
        series={f'npu_dra_npu_temperature_celsius{{{NPU}, chip="910B4", {CLAIM}}}': "95+0x200"},
        minutes=10,
        labels=_DEVICE,
        value="95",
        quiet={
            "warm": {f"npu_dra_npu_temperature_celsius{{{NPU}}}": "85+0x200"},
            "a peak": {f"npu_dra_npu_temperature_celsius{{{NPU}}}": "50+0x5 99+0x5 50+0x100"},
        },
    ),
    Case(
        alert="NpuHbmHot",
        series={f'npu_dra_npu_hbm_temperature_celsius{{{NPU}, chip="910B4", {CLAIM}}}': "96+0x200"},
        minutes=10,
        labels=_DEVICE,
        value="96",
        quiet={
            "warm": {f"npu_dra_npu_hbm_temperature_celsius{{{NPU}}}": "95+0x200"},
            "the chip is hot": {f"npu_dra_npu_temperature_celsius{{{NPU}}}": "99+0x200"},
        },
    ),
    Case(
        alert="NpuHbmErrors",
        series={f"{_DOUBLE_BIT}{{{NPU}, {CLAIM}}}": "2+0x19 3+0x100"},
        minutes=20,
        labels=_DEVICE,
        quiet={
            "old ones": {f"{_DOUBLE_BIT}{{{NPU}, {CLAIM}}}": "3+0x200"},
            "a reset": {f"{_DOUBLE_BIT}{{{NPU}, {CLAIM}}}": "3+0x19 0+0x100"},
            "another holder": {
                f"{_DOUBLE_BIT}{{{NPU}, {CLAIM}}}": "3+0x19 stale",
                f'{_DOUBLE_BIT}{{{NPU}, claim_namespace="", claim=""}}': "_x20 3+0x100",
            },
            "an update": {
                f'{_DOUBLE_BIT}{{{OLD}, device="npu-3"}}': "3+0x19 stale",
                f'{_DOUBLE_BIT}{{{NEW}, device="npu-3"}}': "_x15 3+0x100",
            },
            "corrected ones": {f"npu_dra_npu_hbm_single_bit_errors_total{{{NPU}}}": "0+1x200"},
        },
    ),
    Case(
        alert="NpuHccsDown",
        series={f"npu_dra_npu_hccs_up{{{NPU}, {CLAIM}}}": OFF},
        minutes=5,
        labels=_DEVICE,
        quiet={
            "a reset": {f"npu_dra_npu_hccs_up{{{NPU}}}": "1+0x5 0+0x3 1+0x100"},
            "a board without HCCS": {f"npu_dra_npu_network_fault{{{NPU}}}": OFF},
        },
    ),
)
