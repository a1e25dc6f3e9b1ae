"""The JSON schema of the config, for editors and other tools."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from trio_npu_dra.config.model import API_VERSION, NpuConfig


class _Untitled(GenerateJsonSchema):
    """Titles would only repeat the names of fields, in other letters."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No field has one."""
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Nor has an object."""
        made = super().model_schema(schema)
        made.pop("title", None)
        return made


def schema_json() -> str:
    """The content of the schema's file. It cannot say that each variable is named once."""
    schema = NpuConfig.model_json_schema(schema_generator=_Untitled)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"NpuConfig {API_VERSION}",
    }
    return json.dumps(head | schema, indent=2) + "\n"
