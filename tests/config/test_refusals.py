"""Configs are refused in words that tell what to change."""

from __future__ import annotations

from typing import Any

import pytest

from dev.config.cases import RIGHT, WRONG, Case
from trio_npu_dra.agent.config.model import NpuConfig
from trio_npu_dra.agent.config.refusals import parse_config, problems
from trio_npu_dra.kit.base.errors import InvalidOpaqueConfig


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_config_is_accepted(case: Case) -> None:
    """As it is."""
    assert parse_config(case.parameters, origin="ResourceClaim") == NpuConfig.model_validate(
        case.parameters
    )
    assert not problems(case.parameters)


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_config_is_refused_by_field_and_value(case: Case) -> None:
    """The message says whose config it is, which field, which value and what to do."""
    with pytest.raises(InvalidOpaqueConfig) as caught:
        parse_config(case.parameters, origin="DeviceClass")

    assert str(caught.value) == case.refusal("DeviceClass")


@pytest.mark.parametrize(("parameters", "shown"), [(None, "null"), ([], "a list"), ("a", '"a"')])
def test_parameters_are_an_object(parameters: Any, shown: str) -> None:
    """Anything else is refused as a whole; an API server does not even store it."""
    (problem,) = problems(parameters)
    assert problem.text == f"parameters is {shown}: write an object with apiVersion and kind"
