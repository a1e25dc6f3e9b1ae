"""What is made from the model is what lies in the repository, and says the same as the model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.config_cases import CASES, RIGHT
from trio_npu_dra.config.generate import FILES
from trio_npu_dra.config.manifests import inspect
from trio_npu_dra.config.shape import shape
from trio_npu_dra.config.words import parse_config

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "k8s/schema/npuconfig.v1alpha1.json").read_bytes())
BEYOND_SCHEMA = {"a name twice", "a name that ends a line"}
"""The schema's language cannot say that, or its implementations differ about it."""


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_the_model_makes(name: str) -> None:
    """Run `just config` after a change of the model."""
    assert (ROOT / name).read_text(encoding="utf-8") == FILES[name]()


@pytest.mark.parametrize("name", [name for name in CASES if name not in BEYOND_SCHEMA])
def test_the_schema_decides_as_the_driver_does(name: str) -> None:
    """For editors and other tools."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    is_right = jsonschema.Draft202012Validator(SCHEMA).is_valid(CASES[name].parameters)
    assert is_right == (name in RIGHT)


def examples() -> list[str]:
    """The YAML on the page."""
    return re.findall(r"```yaml\n(.*?)```", FILES["docs/config.md"](), re.DOTALL)


def test_the_pages_examples_are_right() -> None:
    """One has all fields, in a claim; and there is one for each field."""
    claim, *parameters = examples()
    report = inspect(claim.encode())
    assert (report.configs, report.problems) == (1, [])
    shown: set[str] = set()
    for text in parameters:
        config = parse_config(yaml.safe_load(text), origin="page")
        shown |= config.model_dump(by_alias=True, exclude_unset=True).keys()
    assert shown == set(shape().names)


def policy() -> Any:
    """The policy of the base."""
    found, _ = yaml.safe_load_all((ROOT / "k8s/base/npu-config.yaml").read_text(encoding="utf-8"))
    return found["spec"]


def test_the_policy_is_about_writes_that_change_a_config() -> None:
    """Updates of claims change metadata alone: to judge them would keep old claims from going."""
    operations = {
        resource: rule["operations"]
        for rule in policy()["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert operations == {
        "resourceclaims": ["CREATE"],
        "resourceclaimtemplates": ["CREATE"],
        "deviceclasses": ["CREATE", "UPDATE"],
    }


def test_the_policy_lets_claims_pass_if_it_fails() -> None:
    """Claims of other drivers pass through it, and ours are judged again."""
    assert policy()["failurePolicy"] == "Ignore"
