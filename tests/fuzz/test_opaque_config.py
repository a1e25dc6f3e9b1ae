"""Whatever a claim or class carries as opaque config for this driver."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import assume, example, given

from tests.fuzz.values import encoded, is_json, spoilt
from trio_npu_dra.claims.config import parse_config
from trio_npu_dra.errors import InvalidOpaqueConfig

GOOD: Final = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}
EVENT_LIMIT: Final = 1024
"""Characters of an Event's message, which is where the pod's owner reads the error."""


@given(parameters=spoilt(GOOD))
@example(parameters=GOOD | {"\n": None})
def test_any_config_is_taken_or_refused_in_one_short_line(parameters: Any) -> None:
    """There is one kind of error, and it fits into an Event."""
    assume(is_json(encoded(parameters)))  # or the claim could not be read
    try:
        parse_config(parameters, origin="the ResourceClaim")
    except InvalidOpaqueConfig as error:
        words = str(error)
    else:
        words = "the ResourceClaim is fine"
    assert "the ResourceClaim" in words
    assert len(words) < EVENT_LIMIT
    assert len(words.splitlines()) == 1
    assert words.encode()
