"""The admission policy for opaque configs decides as the driver does, only earlier."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.config_cases import CASES, Case
from trio_npu_dra.claims.config import API_VERSION, KIND, NpuConfig, parse_config
from trio_npu_dra.errors import InvalidOpaqueConfig

POLICY = Path(__file__).parent.parent / "k8s/base/npu-config.yaml"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_driver_agrees(case: Case) -> None:
    """The driver accepts exactly the configs that the policy lets through (tests/e2e)."""
    if not case.word:
        assert parse_config(case.parameters, origin="the ResourceClaim")
        return
    with pytest.raises(InvalidOpaqueConfig, match=case.word):
        parse_config(case.parameters, origin="the ResourceClaim")


def test_policy_knows_the_drivers_fields() -> None:
    """A change that adds a field to the config must add it to the policy."""
    policy, _ = yaml.safe_load_all(POLICY.read_text(encoding="utf-8"))
    (unknown,) = [each for each in policy["spec"]["variables"] if each["name"] == "unknown"]
    (listed,) = re.findall(r"field in \[(.*?)\]", unknown["expression"])

    fields = {str(field.alias) for field in NpuConfig.model_fields.values()}
    assert set(re.findall(r'"(\w+)"', listed)) == fields
    checks = str(policy["spec"]["validations"])
    assert f'== "{API_VERSION}"' in checks
    assert f'== "{KIND}"' in checks
