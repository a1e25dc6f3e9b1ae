"""The config object that a ResourceClaim or DeviceClass may carry for this driver.

The admission policy in CEL (k8s/base/npu-config.yaml) has the same rules, written by hand, and
The JSON schema is made from these classes. docs/config.md explains the fields.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

DRIVER: Final = "npu.huawei.com"
"""The name by which configs are addressed to this driver."""
API_VERSION: Final = "npu.huawei.com/v1alpha1"
KIND: Final = "NpuConfig"

MAX_VARIABLES: Final = 32
MAX_NAME: Final = 128  # characters
MAX_VALUE: Final = 1024  # characters
MAX_OF_CLAIM: Final = 64 << 10
"""Bytes of all names and values of a claim's devices together: its record has them all."""
OURS: Final = ("ASCEND_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables that this driver sets itself (`handout.cdi`)."""

ContainerLibraries: TypeAlias = Literal["ldcache", "env", "none"]
VisibleDevices: TypeAlias = Literal["void", "physical"]
SharingStrategy: TypeAlias = Literal["Exclusive", "Shared"]


def _unreserved(name: str) -> str:
    if name in OURS:
        raise PydanticCustomError("reserved", "the driver sets it itself")
    return name


class Part(BaseModel):
    """Base of the config's parts: no other field, no conversion."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=False,
        defer_build=True,  # most nodes never see a config
    )


class Sharing(Part):
    """How containers may use an NPU of the claim."""

    strategy: SharingStrategy = Field(
        "Exclusive",
        description="`Exclusive`: the first container that opens the NPU has it. `Shared`: all "
        "containers of the claim's pods may use it at once.",
    )


class Variable(Part):
    """A variable in the environment of containers."""

    name: Annotated[
        str,
        StringConstraints(max_length=MAX_NAME, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        AfterValidator(_unreserved),
    ] = Field(json_schema_extra={"not": {"enum": list(OURS)}})
    value: Annotated[str, StringConstraints(max_length=MAX_VALUE, pattern=r"^[^\x00]*$")]


def _named_once(variables: list[Variable]) -> list[Variable]:
    first: dict[str, int] = {}
    for index, variable in enumerate(variables):
        if first.setdefault(variable.name, index) != index:
            raise PydanticCustomError(
                "repeated",
                "{name} is there twice",
                {"name": variable.name, "first": first[variable.name], "index": index},
            )
    return variables


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class NpuConfig(Part):
    """What containers get with an NPU, beside the NPU."""

    api_version: Literal["npu.huawei.com/v1alpha1"]
    kind: Literal["NpuConfig"]
    sharing: Sharing = Sharing.model_construct()  # without building the class
    # No config can set it to null, so the type has no None: `model_fields_set` says if it is set.
    container_libraries: ContainerLibraries = Field(
        None,  # type: ignore[arg-type]
        description="How the loaders of containers find the Ascend driver's libraries. Without it, "
        "the driver's flag `--container-libraries` decides.",
        json_schema_extra=_without_default,
    )
    driver_mounts: bool = Field(
        True, description="Whether containers get the Ascend driver's files of the node."
    )
    ub_files: bool = Field(
        True,
        description="Whether containers with an Ascend 950 get the node's user space of the "
        "unified bus (UB).",
    )
    visible_devices: VisibleDevices = Field(
        "void", description="What `ASCEND_VISIBLE_DEVICES` says in containers."
    )
    env: Annotated[list[Variable], Field(max_length=MAX_VARIABLES), AfterValidator(_named_once)] = (
        Field([], description="Variables for the environment of containers, each name once.")
    )


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
