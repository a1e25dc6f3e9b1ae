"""`npu-dra health`: the NPUs' health as the running daemon knows it, and the release of one."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from urllib.parse import urlencode

from pydantic import ValidationError

from trio_npu_dra.agent.control.client import ask_all
from trio_npu_dra.agent.control.report import HealthReport, NpuReport, PartitioningReport
from trio_npu_dra.agent.flags import add_flags
from trio_npu_dra.agent.settings import PluginSettings
from trio_npu_dra.kit.base.errors import ConfigError, ControlError
from trio_npu_dra.kit.base.terminal import say
from trio_npu_dra.tools.cli import table

_COLUMNS = ("DEVICE", "LEVEL", "STATE", "FAULT", "SINCE", "RULE", "HELD BY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that say which daemon, and the form of the output."""
    parser.add_argument(
        "release",
        nargs="*",
        metavar="release DEVICE",
        help="return an NPU that was separated for frequent faults to service, and reset its "
        "fault counters",
    )
    add_flags(parser, PluginSettings)
    parser.usage = "%(prog)s [release DEVICE] [flags]"
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="form of the output (default: table)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the NPUs' health, or release one."""
    settings = PluginSettings.load(vars(arguments), os.environ)
    match arguments.release:
        case []:
            say(*_health(settings, arguments.output))
        case ["release", device]:
            say(_release(settings, device))
        case words:
            raise ConfigError(f"{' '.join(words)!r} is not `release DEVICE`")
    return 0


def _health(settings: PluginSettings, form: str) -> Sequence[str]:
    replies = ask_all(settings.plugin_directory, "GET", "/health")
    # An instance that waits for the owner of the node knows less.
    reply = min(replies, key=lambda reply: '"waits":true' in reply.text)
    if reply.status != 200:
        raise ControlError(f"the daemon answers {reply.status}: {reply.text.strip()}")
    if form == "json":
        return json.dumps(json.loads(reply.text), indent=2).splitlines()
    try:
        report = HealthReport.model_validate_json(reply.text)
    except ValidationError as error:
        raise ControlError(f"the daemon is of another version: {error.errors()[0]}") from None
    return (*_header(report), "", *_table(report))


def _release(settings: PluginSettings, device: str) -> str:
    """Release at every instance: each has a memory of its own."""
    target = f"/release?{urlencode({'device': device})}"
    replies = ask_all(settings.plugin_directory, "POST", target)
    released = [reply.text for reply in replies if reply.status == 200]
    if not released:
        raise ControlError(replies[0].text.strip())
    return released[0]


def _header(report: HealthReport) -> Iterator[str]:
    faults = {
        "events": "reported by the Ascend driver as they happen",
        "polling": f"polled, because the Ascend driver does not report them: {report.refusal}",
        "starting": "not watched yet",
    }
    if report.waits:
        yield "waits:     for the instance that serves this node to end"
    yield f"faults:    {faults[report.watch]}"
    unhealthy = {
        True: "tainted",
        False: "left out of the ResourceSlice, because the API server drops taints",
        None: "not published yet, the API server has not answered",
    }
    yield f"unhealthy NPUs: {unhealthy[report.taints]}"
    yield from _partitioning(report.partitioning)
    for resource in report.resources:
        yield f"resource:  {resource}"
    for held in report.unserved:
        yield f"held:      {held}, which no resource lists now"
    for npu, where in report.waiting.items():
        yield f"moving:    {npu} is to go {where}"
    for call in report.hung_calls:
        where = call.device or "the Ascend driver"
        yield f"hung call: {call.function} of {where} has not returned since {call.since}"
    for gap in report.gaps:
        yield f"missing:   {gap}"


def _partitioning(report: PartitioningReport) -> Iterator[str]:
    if report.is_on:
        yield f"partitions:    {report.problem or 'cut when a claim gets them'}"
    for npu, why in report.refused.items():
        yield f"not cut:   {npu}: {why}"
    for partition in report.partitions:
        yield f"partition:     {partition}"


def _table(report: HealthReport) -> list[str]:
    if not report.npus:
        return ["no NPU"]
    return table.lines([_COLUMNS, *(row for npu in report.npus for row in _rows(npu))])


def _rows(npu: NpuReport) -> Iterator[tuple[str, ...]]:
    """A row for each thing that is wrong; the first one also has what concerns the whole NPU."""
    wrong = [
        (" ".join(filter(None, (fault.code, fault.text))), fault.since, fault.rule)
        for fault in npu.faults
    ]
    wrong += [(words, "-", "-") for words in (npu.unmonitored, npu.network) if words]
    levels = [*(fault.level for fault in npu.faults), *("-" for _ in wrong)]
    held = ", ".join(npu.held_by) or "-"
    is_another = npu.offered_as not in {"", npu.device}
    name = f"{npu.device} of {npu.offered_as}" if is_another else npu.device
    for index, cells in enumerate(wrong or [("-", "-", "-")]):
        if index == 0:
            yield (name, npu.level, npu.state, *cells, held)
        else:
            yield ("", levels[index], "", *cells, "")
