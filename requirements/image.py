#!/usr/bin/env python3
"""Print the name of this tree's image, or write build/overlay, which has it: `just overlay`.

The name is that in NPU_DRA_IMAGE, or `docker.io/library/dra-npu:<version>-<revision>`.

usage: python -m requirements.image [FOLDER]
"""

from __future__ import annotations

import json
import os
import re
import sys

from requirements.revision import ROOT, revision
from trio_npu_dra import __version__

BASE = "docker.io/library/dra-npu"
"""What the manifests call it."""
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?P<name>(?:(?:[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(?::\d+)?/)?{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
"""The grammar of the distribution specification, as docker has it."""


def image_name() -> str:
    """The name of the image, with the tag `latest` if it has neither tag nor digest, as in docker.

    Raises:
        SystemExit: NPU_DRA_IMAGE is no name of an image.
    """
    name = os.environ.get("NPU_DRA_IMAGE") or f"{BASE}:{__version__}-{revision()}"
    found = _NAME.fullmatch(name)
    if found is None:
        sys.exit(
            f"NPU_DRA_IMAGE={name} is no name of an image: write REGISTRY/NAME:TAG, as in "
            "registry.example.com/npu/dra-npu:1"
        )
    return name if found["tag"] or found["digest"] else f"{name}:latest"


def write_overlay(folder: str) -> None:
    """Write the overlay, as JSON, which is YAML: there a tag of digits is no number."""
    found = _NAME.fullmatch(image_name())
    assert found is not None
    version = {"digest": found["digest"]} if found["digest"] else {"newTag": found["tag"]}
    overlay = {
        "resources": [f"../../{folder}"],
        "images": [{"name": BASE, "newName": found["name"], **version}],
    }
    path = ROOT / "build/overlay/kustomization.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(overlay, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            print(image_name())
        case [folder]:
            write_overlay(folder)
        case _:
            sys.exit(__doc__)
