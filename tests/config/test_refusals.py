"""Configs are refused with messages that say what to change."""

from __future__ import annotations

from typing import Any

import pytest

from dev.config.cases import GOOD, RIGHT, WRONG, Case
from trio_npu_dra.agent.config.model import NpuConfig
from trio_npu_dra.agent.config.refusals import parse_config
from trio_npu_dra.kit.base.errors import InvalidOpaqueConfig


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_config_is_accepted(case: Case) -> None:
    """As it is."""
    assert parse_config(case.parameters, origin="ResourceClaim") == NpuConfig.model_validate(
        case.parameters
    )


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_config_is_refused_by_field_and_value(case: Case) -> None:
    """The message says whose config it is, which field, which value and what to do."""
    with pytest.raises(InvalidOpaqueConfig) as caught:
        parse_config(case.parameters, origin="DeviceClass")

    assert str(caught.value) == case.refusal("DeviceClass")


@pytest.mark.parametrize(("parameters", "shown"), [(None, "null"), ([], "a list"), ("a", '"a"')])
def test_parameters_are_an_object(parameters: Any, shown: str) -> None:
    """Anything else is refused as a whole; an API server does not even store it."""
    text = f"parameters is {shown}: write an object with apiVersion and kind"
    with pytest.raises(InvalidOpaqueConfig, match=text):
        parse_config(parameters, origin="ResourceClaim")


def test_the_first_three_problems_are_told() -> None:
    """An Event of the pod has room for no more."""
    with pytest.raises(InvalidOpaqueConfig) as caught:
        parse_config(GOOD | dict.fromkeys("abcde"), origin="ResourceClaim")
    assert str(caught.value).count("is not known to this driver: remove it") == 3
    assert str(caught.value).endswith("; and 2 more")
