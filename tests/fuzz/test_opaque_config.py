"""Any opaque config for this driver in a claim or class."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import assume, example, given

from dev.fuzz.values import encoded, is_json, spoilt
from trio_npu_dra.agent.config.refusals import parse_config
from trio_npu_dra.kit.base.errors import InvalidOpaqueConfig

GOOD: Final = {
    "apiVersion": "npu.huawei.com/v1alpha1",
    "kind": "NpuConfig",
    "sharing": {"strategy": "Shared"},
    "containerLibraries": "none",
    "driverMounts": False,
    "env": [{"name": "A", "value": ""}, {"name": "B", "value": "2"}],
}
EVENT_LIMIT: Final = 1024
"""Characters of an Event's message, in which the pod's owner reads the error."""


@given(parameters=spoilt(GOOD))
@example(parameters=GOOD | {"\n": None})
@example(parameters={"\ud800" * 99: 1, "env": [dict.fromkeys("\x00\u2028", "A" * 2000)] * 9})
def test_any_config_is_taken_or_refused_in_one_short_line(parameters: Any) -> None:
    """Every error is of one class and fits into an Event."""
    assume(is_json(encoded(parameters)))  # otherwise the claim could not be read
    try:
        parse_config(parameters, origin="ResourceClaim")
    except InvalidOpaqueConfig as error:
        words = str(error)
    else:
        words = "the ResourceClaim is fine"
    assert "the ResourceClaim" in words
    assert len(words) < EVENT_LIMIT
    assert len(words.splitlines()) == 1
    assert words.encode()
