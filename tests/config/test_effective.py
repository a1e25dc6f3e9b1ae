"""Several configs come to one, in their order."""

from __future__ import annotations

from typing import Any

from dev.config.cases import GOOD, named
from trio_npu_dra.agent.config.model import DEFAULT_CONFIG, EffectiveConfig, effective
from trio_npu_dra.agent.config.refusals import parse_config


def come_to(*fields: dict[str, Any]) -> EffectiveConfig:
    """The effective config of configs with these fields."""
    return effective(parse_config(GOOD | each, origin="ResourceClaim") for each in fields)


def test_without_a_config_all_is_as_ever() -> None:
    """Nor does one without fields change anything."""
    assert come_to() == come_to({}) == come_to({"sharing": {}, "env": []}) == DEFAULT_CONFIG


def test_a_later_config_wins_field_by_field() -> None:
    """Fields that it does not set stay, and it can set a default again."""
    first = {"sharing": {"strategy": "Shared"}, "driverMounts": False, "containerLibraries": "env"}
    assert come_to(first) == EffectiveConfig(
        shared=True, driver_mounts=False, container_libraries="env"
    )
    assert come_to(first, {"sharing": {}, "driverMounts": True}) == EffectiveConfig(
        shared=True, container_libraries="env"
    )
    assert not come_to(first, {"sharing": {"strategy": "Exclusive"}}).shared
    bus = {"ubFiles": False, "visibleDevices": "physical"}
    assert come_to(bus) == EffectiveConfig(ub_files=False, visible_devices="physical")
    assert come_to(bus, {"ubFiles": True, "visibleDevices": "void"}) == DEFAULT_CONFIG


def test_variables_come_together_by_name() -> None:
    """The later value counts."""
    first = {"env": [named("A", "1"), named("B", "2")]}
    assert come_to(first, {"env": [named("C", "3"), named("A", "4")]}).env == (
        ("A", "4"),
        ("B", "2"),
        ("C", "3"),
    )
