"""Every file that is made from the code: `just generated` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dev.config import schema
from dev.site import chart_values, containers, npu_json, reference
from dev.site.markdown import with_table
from dev.site.stage import ROOT
from trio_npu_dra.agent.observe.catalog import CATALOG

_METRICS_HEAD: Final = "| metric | kind | labels | meaning |"


def metrics_page() -> str:
    """docs/metrics.md, with its table of all metrics as it is now."""
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.meaning} |"
        for metric in CATALOG
    ]
    return with_table(page, _METRICS_HEAD, rows)


GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    "charts/trio-npu-dra/values.schema.json": chart_values.schema_text,
    "docs/helm.md": chart_values.page_text,
    "docs/metrics.md": metrics_page,
    "docs/reference/containers.md": containers.page,
    "docs/reference/errors.md": reference.errors_page,
    "docs/reference/events.md": reference.events_page,
    "docs/reference/flags.md": reference.flags_page,
    "docs/reference/kubectl-npu.md": npu_json.page,
    "docs/reference/taints.md": reference.taints_page,
    "k8s/schema/npuconfig.v1alpha1.json": schema.content,
}
"""Each file, and what makes its content."""


if __name__ == "__main__":
    for name, content in GENERATED.items():
        (ROOT / name).write_text(content(), encoding="utf-8")
