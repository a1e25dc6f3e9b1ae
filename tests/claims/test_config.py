"""Opaque configs are refused in words that tell what to change."""

from typing import Any

import pytest

from trio_npu_dra.claims.config import NpuConfig, parse_config
from trio_npu_dra.errors import InvalidOpaqueConfig

GOOD = {"apiVersion": "npu.huawei.com/v1alpha1", "kind": "NpuConfig"}


def test_the_only_config_is_accepted() -> None:
    """API version and kind, nothing else."""
    assert parse_config(GOOD, origin="the ResourceClaim") == NpuConfig.model_validate(GOOD)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (GOOD | {"share": True}, "share=True is not known to this driver: remove it"),
        (GOOD | {"kind": "GpuConfig"}, "kind='GpuConfig' is not supported: write apiVersion npu"),
        (GOOD | {"apiVersion": "npu.huawei.com/v1"}, "apiVersion='npu.huawei.com/v1' is not"),
        (GOOD | {"api_version": "x"}, "api_version='x' is not known"),
        ({"kind": "NpuConfig"}, "apiVersion is missing: write apiVersion npu.huawei.com/v1alpha1"),
        (None, "the parameters are None: write an object"),
        ([], r"the parameters are \[\]: write an object"),
    ],
)
def test_any_other_config_is_refused_by_field_and_value(parameters: Any, words: str) -> None:
    """The message says whose config it is, which field, which value and what to do."""
    with pytest.raises(InvalidOpaqueConfig, match=words) as caught:
        parse_config(parameters, origin="the DeviceClass")

    assert "opaque config in the DeviceClass" in str(caught.value)


@pytest.mark.parametrize(
    "parameters",
    [
        GOOD | {"note": "x" * 11_000},
        GOOD | {"x" * 11_000: 1},
        GOOD | {f"field{number}": "x" for number in range(900)},
        "x" * 11_000,
        [[]] * 5_000,
    ],
    ids=["long value", "long name", "many fields", "long text", "long list"],
)
def test_a_config_of_any_size_is_refused_in_a_few_words(parameters: Any) -> None:
    """What to do must survive the 1024 characters of a pod's event."""
    with pytest.raises(InvalidOpaqueConfig) as caught:
        parse_config(parameters, origin="the ResourceClaim")

    assert len(str(caught.value)) < 500
    assert "remove it" in str(caught.value) or "write an object" in str(caught.value)


def test_problems_beyond_the_third_are_counted() -> None:
    """Nobody reads nine hundred."""
    with pytest.raises(InvalidOpaqueConfig, match=r"; and 2 more$"):
        parse_config(GOOD | dict.fromkeys("abcde"), origin="the ResourceClaim")
