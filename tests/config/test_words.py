"""Configs are refused in words that tell what to change."""

from __future__ import annotations

from typing import Any

import pytest

from dev.config.cases import GOOD, RIGHT, WRONG, Case
from trio_npu_dra.agent.config.model import NpuConfig
from trio_npu_dra.agent.config.words import parse_config, problems
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


@pytest.mark.parametrize(
    "parameters",
    [
        GOOD | {"kind": "x" * 11_000},
        GOOD | {"x" * 11_000: 1},
        GOOD | {f"field{number}": "x" for number in range(900)},
        GOOD | {"env": [{}] * 32},
        "x" * 11_000,
        [[]] * 5_000,
    ],
    ids=["long value", "long name", "many fields", "many problems", "long text", "long list"],
)
def test_a_config_of_any_size_is_refused_in_a_few_words(parameters: Any) -> None:
    """What to do must survive the 1024 characters of a pod's event."""
    with pytest.raises(InvalidOpaqueConfig) as caught:
        parse_config(parameters, origin="ResourceClaim")

    assert len(str(caught.value)) < 500
    assert "remove " in str(caught.value) or ": write " in str(caught.value)


def test_a_problem_names_the_place() -> None:
    """For those who look for its line."""
    found = problems(GOOD | {"env": [{"name": "A", "value": "", "x": 1}], "y": 1})
    assert [problem.path for problem in found] == [("env", 0, "x"), ("y",)]
