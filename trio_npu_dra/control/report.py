"""The NPUs' health for people: what the daemon answers, and what `npu-dra health` reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from trio_npu_dra.holds.hold import Hold, holds_of
from trio_npu_dra.holds.offered import offered
from trio_npu_dra.kube.objects import rfc3339
from trio_npu_dra.npu.dcmi.types import ChipRef
from trio_npu_dra.npu.dcmi.worker import HungCall
from trio_npu_dra.npu.model import Board, Chip, Fault
from trio_npu_dra.npu.subscription import WatchStatus


class _Report(BaseModel):
    # A daemon of another version may send more fields.
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class FaultReport(_Report):
    """One thing that is wrong.

    Attributes:
        code: Eight hex digits; zeros are an alarm without a code.
        level: How it is to be handled.
        rule: Why it has this level.
        text: The library's words, empty when it has none.
        since: RFC 3339.
    """

    code: str
    level: str
    rule: str
    text: str
    since: str


class NpuReport(_Report):
    """One NPU.

    Attributes:
        device: Its name.
        offered_as: Its device's name in slices and claims, such as that of a module, or those of
            its pieces; empty while it is not handed out.
        level: Of the worst fault.
        state: `Healthy`, `Unhealthy` or `Unknown`.
        faults: Worst first.
        unmonitored: Why its health cannot be read; empty if it can.
        network: What is wrong with its RoCE port.
        held_by: The claims that hold it, `namespace/name`.
    """

    device: str
    offered_as: str = ""
    level: str
    state: str
    faults: tuple[FaultReport, ...] = ()
    unmonitored: str = ""
    network: str = ""
    held_by: tuple[str, ...] = ()


class HungCallReport(_Report):
    """A call into libdcmi.so that has not returned.

    Attributes:
        function: What was called.
        device: The NPU; empty for the Ascend driver as a whole.
        since: RFC 3339.
    """

    function: str
    device: str
    since: str


class HealthReport(_Report):
    """All that the daemon knows of its NPUs' health.

    Attributes:
        watch: Whether the Ascend driver sends fault events, or chips are read in turn.
        refusal: Why the Ascend driver sends none.
        taints: Whether sick NPUs are tainted; else they are left out of the ResourceSlice. None
            until the API server has answered.
        hung_calls: Oldest first.
        gaps: Why NPUs or facts may be missing, in words.
        npus: By number.
    """

    watch: Literal["events", "polling", "starting"]
    refusal: str = ""
    taints: bool | None = None
    hung_calls: tuple[HungCallReport, ...] = ()
    gaps: tuple[str, ...] = ()
    npus: tuple[NpuReport, ...] = ()


def report_npus(board: Board, holds: tuple[Hold, ...]) -> tuple[NpuReport, ...]:
    """All chips, as the last Board has them."""
    devices: dict[str, list[str]] = {}
    for offer in offered(board, holds):
        for node in offer.device_nodes:
            devices.setdefault(node, []).append(offer.name)
    return tuple(
        _report_npu(chip, ", ".join(devices.get(chip.device_node, ())), holds)
        for chip in board.chips
    )


def _report_npu(chip: Chip, device: str, holds: Iterable[Hold]) -> NpuReport:
    holders = dict.fromkeys(hold.holder for hold in holds_of({chip.device_node}, holds))
    return NpuReport(
        device=chip.name,
        offered_as=device,
        level=chip.health.level,
        state=chip.health.state.value,
        faults=tuple(map(_report_fault, chip.health.faults)),
        unmonitored=chip.health.unmonitored,
        network=chip.health.network,
        held_by=tuple(map(str, holders)),
    )


def report_hung(call: HungCall, board: Board) -> HungCallReport:
    """A call that has not returned, with the name of its NPU."""
    parts = call.device if isinstance(call.device, tuple) else ()
    ref = next((part for part in (call.device, *parts) if isinstance(part, ChipRef)), None)
    names = [chip.name for chip in board.chips if chip.ref == ref]
    return HungCallReport(
        function=call.function, device="".join(names[:1]), since=rfc3339(call.since)
    )


def watch_mode(status: WatchStatus) -> Literal["events", "polling", "starting"]:
    """How the watcher learns of faults, in a word."""
    if status.subscribed:
        return "events"
    return "polling" if status.refusal else "starting"


def _report_fault(fault: Fault) -> FaultReport:
    return FaultReport(
        code=f"{fault.code:08X}",
        level=fault.level,
        rule=fault.rule,
        text=fault.text,
        since=rfc3339(fault.since),
    )
