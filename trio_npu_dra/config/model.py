"""The config object that a ResourceClaim or DeviceClass may carry for this driver.

The JSON schema, the admission policy in CEL, the page docs/config.md and the words of every refusal
are made from these classes.
"""

from __future__ import annotations

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
"""Bytes of names and values that a claim's devices have together: all goes into its record."""
OURS: Final = ("ASCEND_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
"""Variables that this driver sets itself (`claims.cdi`)."""

ContainerLibraries: TypeAlias = Literal["ldcache", "env", "none"]
VisibleDevices: TypeAlias = Literal["void", "physical"]
SharingStrategy: TypeAlias = Literal["Exclusive", "Shared"]


@dataclass(frozen=True, slots=True)
class Write:
    """What to write into a field, where its type does not say so itself.

    Attributes:
        words: They follow `write`.
    """

    words: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """Names that cannot be taken.

    Attributes:
        names: The names.
    """

    names: tuple[str, ...]

    def check(self, name: str) -> str:
        """The name, if it is free."""
        if name in self.names:
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
    """Who may use an NPU of the claim at once."""

    strategy: SharingStrategy = Field(
        "Exclusive",
        description="`Exclusive`: the first container that opens the NPU has it. `Shared`: all "
        "containers of the claim's pods may use it at once. A claim that has a share of an NPU "
        "(`--sharing=shares`) shares it whatever is written here.",
    )


_RESERVED: Final = Reserved(OURS)


class Variable(Part):
    """A variable for the environment of containers."""

    name: Annotated[
        str,
        StringConstraints(max_length=MAX_NAME, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        Write("a name of letters, digits and _ that does not begin with a digit"),
        _RESERVED,
        AfterValidator(_RESERVED.check),
    ] = Field(
        description=f"Letters, digits and `_`, no digit first, at most {MAX_NAME} of them; none of "
        f"{' and '.join(f'`{name}`' for name in OURS)}, which the driver sets itself.",
        json_schema_extra={"not": {"enum": list(OURS)}},
    )
    value: Annotated[
        str,
        StringConstraints(max_length=MAX_VALUE, pattern=r"^[^\x00]*$"),
        Write("a text without NUL, in quotes if it looks like something else"),
    ] = Field(
        description=f"A text of at most {MAX_VALUE} characters. YAML takes `1`, `yes` or `null` "
        'for something else: write `"1"`.',
    )


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


Variables: TypeAlias = Annotated[
    list[Variable], Field(max_length=MAX_VARIABLES), AfterValidator(_named_once)
]


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


class NpuConfig(Part):
    """What containers get with an NPU, beside the NPU."""

    api_version: Annotated[
        Literal["npu.huawei.com/v1alpha1"], Write(f"apiVersion {API_VERSION} and kind {KIND}")
    ] = Field(description="The version of this object.")
    kind: Annotated[Literal["NpuConfig"], Write(f"apiVersion {API_VERSION} and kind {KIND}")] = (
        Field(description="The kind of this object.")
    )
    sharing: Sharing = Field(
        Sharing(),
        description="Who may use the NPU at once.",
        examples=[{"strategy": "Exclusive"}],
    )
    # Null is no value that can be written, so the type has none: without one, see what was set.
    container_libraries: ContainerLibraries = Field(
        None,  # type: ignore[arg-type]
        description="How the loaders of containers find the Ascend driver's libraries. "
        "`ldcache`: a hook puts their folders into the container's `/etc/ld.so.cache`. `env`: the "
        "variable `LD_LIBRARY_PATH`, which replaces the image's own. `none`: all is left to the "
        "image. Without this field, the driver's flag `--container-libraries` decides.",
        examples=["env"],
        json_schema_extra=_without_default,
    )
    driver_mounts: bool = Field(
        True,
        description="Whether containers get the Ascend driver's files of the node: libraries, "
        "tools and what tells their versions. `false` is for images that bring files which fit "
        "the node's driver. What the operator adds with `--extra-mount` is mounted in any case.",
        examples=[False],
    )
    ub_files: bool = Field(
        True,
        description="Whether containers with an Ascend 950 get the user space of the unified bus "
        "(UB) of the node: `libummu*`, `liburma*`, `libnl*` and `urma` of `/usr/lib64`, "
        "`urma_admin`, `urma_perftest` and `urma_ping` of `/usr/bin`, where they exist. `false` is "
        "for images that bring their own, or whose glibc is older than the node's.",
        examples=[False],
    )
    visible_devices: VisibleDevices = Field(
        "void",
        description="What `ASCEND_VISIBLE_DEVICES` says in containers; the same for all NPUs of a "
        "claim. `void`: an Ascend container runtime below adds nothing. `physical`: the physical "
        "ids of all NPUs of the claim (of vNPUs their ids), such as `0,3`, for programs that read "
        "them there.",
        examples=["physical"],
    )
    env: Variables = Field(
        [],
        description="Variables for the environment of containers, each name once. With containerd "
        f"they win over the image's and over the pod's own. At most {MAX_VARIABLES}.",
        examples=[
            [
                {"name": "ASCEND_GLOBAL_LOG_LEVEL", "value": "1"},
                {"name": "HCCL_CONNECT_TIMEOUT", "value": "600"},
            ]
        ],
    )
