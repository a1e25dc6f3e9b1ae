"""The schema agrees with the model."""

from __future__ import annotations

import json

import jsonschema
import pytest

from dev.config import schema
from dev.config.cases import CASES, RIGHT

BEYOND_SCHEMA = {"a name twice", "env[0].name: 'A\\n'"}
"""The schema's language cannot say that, or its implementations differ about it."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in BEYOND_SCHEMA])
def test_the_schema_decides_as_the_driver_does(name: str) -> None:
    """For editors and other tools."""
    found = json.loads(schema.content())
    jsonschema.Draft202012Validator.check_schema(found)
    is_right = jsonschema.Draft202012Validator(found).is_valid(CASES[name].parameters)
    assert is_right == (name in RIGHT)
