"""The JSON schema of the config, for editors and other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from trio_npu_dra.agent.config.model import API_VERSION, NpuConfig

FILE: Final = Path(__file__).parent.parent.parent / "k8s/schema/npuconfig.v1alpha1.json"


def content() -> str:
    """The file's content, without titles, which would only repeat the names of fields."""
    made = json.dumps(NpuConfig.model_json_schema())
    schema = json.loads(made, object_pairs_hook=_untitled)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"NpuConfig {API_VERSION}",
    }
    return json.dumps(head | schema, indent=2) + "\n"


def _untitled(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in pairs if name != "title"}
