"""Schema and page agree with the model."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from dev.config import schema
from dev.config.cases import CASES, RIGHT
from dev.site.markdown import anchors, blocks
from dev.site.stage import ROOT
from trio_npu_dra.agent.config.model import NpuConfig
from trio_npu_dra.agent.config.refusals import parse_config

BEYOND_SCHEMA = {"a name twice", "env[0].name: 'A\\n'"}
"""The schema's language cannot say that, or its implementations differ about it."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in BEYOND_SCHEMA])
def test_the_schema_decides_as_the_driver_does(name: str) -> None:
    """For editors and other tools."""
    found = json.loads(schema.content())
    jsonschema.Draft202012Validator.check_schema(found)
    is_right = jsonschema.Draft202012Validator(found).is_valid(CASES[name].parameters)
    assert is_right == (name in RIGHT)


def test_the_page_has_every_field() -> None:
    """Each has a section, and a right value in the example."""
    page = (ROOT / "docs/config.md").read_text(encoding="utf-8")
    (example,) = (block.text for block in blocks(page) if block.language == "yaml")
    shown = yaml.safe_load(example)["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert parse_config(shown, origin="ResourceClaim")
    assert shown.keys() == {field.alias for field in NpuConfig.model_fields.values()}
    assert {name.lower() for name in shown.keys() - {"apiVersion", "kind"}} <= anchors(page)
