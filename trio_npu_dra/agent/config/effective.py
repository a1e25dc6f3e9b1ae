"""The effective config of a device, from several configs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from trio_npu_dra.agent.config.model import ContainerLibraries, NpuConfig, VisibleDevices


@dataclass(frozen=True, slots=True)
class EffectiveConfig:
    """All configs of a device applied; the fields are those of `NpuConfig`.

    None as `container_libraries` leaves the choice to the driver's flag.
    """

    shared: bool = False
    container_libraries: ContainerLibraries | None = None
    driver_mounts: bool = True
    ub_files: bool = True
    visible_devices: VisibleDevices = "void"
    env: tuple[tuple[str, str], ...] = ()


DEFAULT_CONFIG = EffectiveConfig()
_FIELDS: Final = {"container_libraries", "driver_mounts", "ub_files", "visible_devices"}


def effective(configs: Iterable[NpuConfig]) -> EffectiveConfig:
    """Apply configs in their order: a later one wins, field by field and variable by variable."""
    given: dict[str, Any] = {}
    env: dict[str, str] = {}
    for config in configs:
        given |= {name: getattr(config, name) for name in _FIELDS & config.model_fields_set}
        if "strategy" in config.sharing.model_fields_set:
            given["shared"] = config.sharing.strategy == "Shared"
        env |= {variable.name: variable.value for variable in config.env}
    return EffectiveConfig(**given, env=tuple(env.items()))
