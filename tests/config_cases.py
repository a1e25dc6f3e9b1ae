"""Opaque configs, and which field of each is refused: by the driver and by the admission policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GOOD = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One config.

    `word` is in the message of whoever refuses it; empty if it is taken.
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
"""Parameters that are no object are refused by the API server itself."""
