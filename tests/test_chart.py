"""The chart's values, their schema and their tables say the same, and its manifests are k8s/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from dev.site.chart_values import (
    CHART,
    OF_THE_POD,
    ROOT,
    SCHEMA,
    VALUES,
)
from dev.site.chart_values import values as documented
from trio_npu_dra import __version__
from trio_npu_dra.agent.flags import flag
from trio_npu_dra.agent.settings import Settings

DEFAULTS = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
DESCRIBED = json.loads(SCHEMA.read_text(encoding="utf-8"))
TEMPLATES = "\n".join(
    path.read_text(encoding="utf-8") for path in sorted((CHART / "templates").iterdir())
)


def is_right(values: Any) -> bool:
    """Whether the schema lets these values through."""
    return bool(jsonschema.Draft202012Validator(DESCRIBED).is_valid(values))


def paths(schema: Any) -> Iterator[tuple[str, ...]]:
    """The values that a schema knows by name; for flags and families that is the whole map."""
    for name, about in schema["properties"].items():
        if name in {"flags", "families"} or "properties" not in about:
            yield (name,)
        else:
            yield from ((name, *rest) for rest in paths(about))


def test_version_is_the_drivers() -> None:
    """Chart and driver are released together; Helm writes `.dev0` in another way."""
    about = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert about["appVersion"] == __version__
    assert about["version"] == __version__.replace(".dev", "-dev")


def test_every_value_is_documented_and_has_its_schema() -> None:
    """Helm refuses a name that the schema does not know."""
    jsonschema.Draft202012Validator.check_schema(DESCRIBED)
    known = {path for path in paths(DESCRIBED) if path != ("global",)}
    assert {value.path for value in documented()} == known
    assert is_right(DEFAULTS)
    assert is_right(DEFAULTS | {"global": {"registry": "of another chart"}})


@pytest.mark.parametrize("part", [name for name in DEFAULTS if isinstance(DEFAULTS[name], dict)])
def test_unknown_names_are_wrong_in_every_part(part: str) -> None:
    """But for what Kubernetes defines, and it judges that."""
    free = {"nodeSelector", "affinity", "podAnnotations", "podLabels", "updateStrategy"}
    assert is_right({part: {"misspelt": "x"}}) == (part in free)


def test_every_flag_is_a_value_or_the_manifests_business() -> None:
    """A new setting is a value without more ado."""
    assert Settings.model_fields.keys() >= OF_THE_POD
    offered = DESCRIBED["properties"]["flags"]["properties"]
    names = {name.replace("-", "_") for name in offered}
    assert names == Settings.model_fields.keys() - OF_THE_POD


def test_templates_read_every_file_of_the_base() -> None:
    """From the folder itself, by a link; the namespace is Helm's business."""
    assert (CHART / "manifests").resolve() == ROOT / "k8s"
    base = yaml.safe_load((ROOT / "k8s/base/kustomization.yaml").read_text(encoding="utf-8"))
    read = set(re.findall(r'"base/([\w-]+\.yaml)"', TEMPLATES))
    assert read == set(base["resources"]) - {"namespace.yaml"}


def test_no_flag_has_a_folder_by_its_default_alone() -> None:
    """The chart replaces the folders of kubelet and CDI in what the base says."""
    (daemonset,) = yaml.safe_load_all((ROOT / "k8s/base/daemonset.yaml").read_text("utf-8"))
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    folders = [Path(DEFAULTS[part]["directory"]) for part in ("kubelet", "cdi")]
    for name, field in Settings.model_fields.items():
        place = field.default
        if isinstance(place, Path) and any(place.is_relative_to(folder) for folder in folders):
            assert f"{flag(name)}={place}" in container["args"]
