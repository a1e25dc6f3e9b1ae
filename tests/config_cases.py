"""Opaque configs and the field of each that driver and admission policy refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GOOD = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One config.

    A refusal's message contains `word`; empty if the config is accepted.
    """

    parameters: dict[str, Any]
    word: str = ""


CASES = {
    "good": Case(parameters=GOOD),
    "wrong kind": Case(parameters=GOOD | {"kind": "GpuConfig"}, word="kind"),
    "no kind": Case(parameters={"apiVersion": GOOD["apiVersion"]}, word="kind"),
    "kind of a wrong type": Case(parameters=GOOD | {"kind": 1}, word="kind"),
    "wrong apiVersion": Case(
        parameters=GOOD | {"apiVersion": "npu.huawei.com/v1"}, word="apiVersion"
    ),
    "no apiVersion": Case(parameters={"kind": GOOD["kind"]}, word="apiVersion"),
    "unknown field": Case(parameters=GOOD | {"timeSlice": "short"}, word="timeSlice"),
    "unknown empty field": Case(parameters=GOOD | {"timeSlice": None}, word="timeSlice"),
    "field with a wrong letter": Case(parameters=GOOD | {"Kind": "NpuConfig"}, word="Kind"),
    "nothing": Case(parameters={}, word="apiVersion"),
}
"""The API server itself refuses parameters that are no object."""
