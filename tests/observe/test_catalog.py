"""The catalog keeps to Prometheus' rules."""

from __future__ import annotations

import re

import pytest

from trio_npu_dra.agent.observe.catalog import CATALOG, Definition, Kind

UNITS = ("seconds", "bytes", "celsius", "watts", "ratio", "info")
PROMETHEUS = {"job", "instance", "namespace", "pod", "container", "node", "endpoint", "le"}
"""Labels that Prometheus adds to the series of a pod, or reserves."""
WRONG_UNITS = ("milli", "micro", "minutes", "hours", "percent", "mib", "kilo", "_ms")


@pytest.mark.parametrize("one", CATALOG, ids=lambda one: one.name)
def test_a_name_keeps_to_the_rules(one: Definition) -> None:
    """It has prefix, base unit at the end, `_total` only on counters, own labels, a meaning."""
    assert re.fullmatch(r"npu_dra_[a-z]+(_[a-z]+)*", one.name)
    assert one.name.endswith("_total") == (one.kind is Kind.COUNTER)
    assert not one.name.endswith(("_count", "_sum", "_bucket", "_created"))
    assert not any(unit in one.name for unit in WRONG_UNITS)
    stem = one.name.removesuffix("_total")
    assert all(stem.endswith(unit) for unit in UNITS if f"_{unit}" in stem)
    assert (one.kind is Kind.HISTOGRAM) == bool(one.buckets)
    assert one.buckets == tuple(sorted(set(one.buckets)))
    assert one.meaning.endswith(".")
    assert PROMETHEUS.isdisjoint(one.labels)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", label) for label in one.labels)


def test_names_are_there_once() -> None:
    """They are unique, also without the suffixes by which formats differ."""
    names = [one.name.removesuffix("_total") for one in CATALOG]
    assert len(set(names)) == len(names)
