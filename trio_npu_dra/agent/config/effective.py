"""What several configs come to for one device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trio_npu_dra.agent.config.model import ContainerLibraries, NpuConfig, VisibleDevices


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveConfig:
    """What holds for a device when all its configs are applied; without any, the defaults.

    Attributes:
        shared: Whether several containers may use it at once.
        container_libraries: How loaders find the Ascend driver's libraries; None for what the
            driver's flag says.
        driver_mounts: Whether containers get the Ascend driver's files.
        ub_files: Whether containers get the user space of the unified bus.
        visible_devices: What ASCEND_VISIBLE_DEVICES tells.
        env: Names and values of variables, each name once.
    """

    shared: bool = False
    container_libraries: ContainerLibraries | None = None
    driver_mounts: bool = True
    ub_files: bool = True
    visible_devices: VisibleDevices = "void"
    env: tuple[tuple[str, str], ...] = ()


DEFAULT_CONFIG = EffectiveConfig()


def effective(configs: Iterable[NpuConfig]) -> EffectiveConfig:
    """Apply configs in their order: a later one wins, field by field and variable by variable."""
    result = DEFAULT_CONFIG
    for config in configs:
        given = config.model_fields_set
        if "strategy" in config.sharing.model_fields_set:
            result = replace(result, shared=config.sharing.strategy == "Shared")
        if "container_libraries" in given:
            result = replace(result, container_libraries=config.container_libraries)
        if "driver_mounts" in given:
            result = replace(result, driver_mounts=config.driver_mounts)
        if "ub_files" in given:
            result = replace(result, ub_files=config.ub_files)
        if "visible_devices" in given:
            result = replace(result, visible_devices=config.visible_devices)
        env = dict(result.env) | {variable.name: variable.value for variable in config.env}
        result = replace(result, env=tuple(env.items()))
    return result
