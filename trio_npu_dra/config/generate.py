"""Write what is made from the model; run in the repository, as `just config` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from trio_npu_dra.config.page import page
from trio_npu_dra.config.policy import policy_yaml
from trio_npu_dra.config.schema import schema_json

FILES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/config.md": page,
    "k8s/base/npu-config.yaml": policy_yaml,
    "k8s/schema/npuconfig.v1alpha1.json": schema_json,
}
"""Each file, and what makes its content."""


def write_all(root: Path) -> None:
    """Write all files below *root*."""
    for name, content in FILES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(content(), encoding="utf-8")


if __name__ == "__main__":
    write_all(Path())
