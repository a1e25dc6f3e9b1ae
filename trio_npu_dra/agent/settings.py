"""Every setting of an operator, defined once: a flag, its environment variable, its check.

`--cdi-root` is the field `cdi_root` and the variable `NPU_DRA_CDI_ROOT`. A flag wins over the
variable, the variable over the default.
"""

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.config import JsonDict

from trio_npu_dra.agent.flags import GROUP, Form, environment_variable, flag, refusals
from trio_npu_dra.kit.base.errors import ConfigError

_NAMES: Final[JsonDict] = {GROUP: "names"}
_PLACES: Final[JsonDict] = {GROUP: "files and folders"}
_HEALTH: Final[JsonDict] = {GROUP: "health"}
_DEVICE_PLUGIN: Final[JsonDict] = {GROUP: "device plugin"}
_PARTS: Final[JsonDict] = {GROUP: "shares and partitions"}
_CONTAINERS: Final[JsonDict] = {GROUP: "containers"}
_ENDPOINTS: Final[JsonDict] = {GROUP: "probes and metrics"}
_CLAIMS: Final[JsonDict] = {GROUP: "claims"}
_LOG: Final[JsonDict] = {GROUP: "log"}

_UID = r"^[0-9A-Za-z]([-0-9A-Za-z]*[0-9A-Za-z])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"

_PLAIN_PATH = r"(/(?!\.{1,2}(/|$))[^/:]+)+"


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _mounts(text: str) -> tuple[tuple[str, str], ...]:
    """Parse `HOST[:CONTAINER]`, separated by commas, into pairs of paths.

    Raises:
        ValueError: A path is not absolute and plain, or two mounts are at one place.
    """
    mounts: dict[str, str] = {}
    for one in filter(None, text.split(",")):
        host, colon, container = one.partition(":")
        container = container if colon else host
        for path in (host, container):
            if not re.fullmatch(_PLAIN_PATH, path):
                raise ValueError(f"{path!r} in {one!r} must be an absolute path without . or ..")
        if container in mounts:
            raise ValueError(f"two mounts have the container path {container}")
        mounts[container] = host
    return tuple((host, container) for container, host in mounts.items())


def _checked_mounts(text: str) -> str:
    _mounts(text)
    return text


def _subdomain(longest: int) -> Form:
    return Form(
        metavar="NAME",
        expected=f"at most {longest} of a-z, 0-9, - and ., with a letter or digit at both ends",
    )


DriverName = Annotated[str, StringConstraints(pattern=_SUBDOMAIN, max_length=63), _subdomain(63)]
NodeName = Annotated[str, StringConstraints(pattern=_SUBDOMAIN, max_length=253), _subdomain(253)]
PodUid = Annotated[
    str,
    StringConstraints(pattern=_UID, max_length=63),
    Form(
        metavar="UID",
        expected="at most 63 letters, digits and -, with a letter or digit at both ends",
    ),
]
AbsolutePath = Annotated[Path, AfterValidator(_absolute), Form(metavar="PATH")]
Port = Annotated[int, Field(ge=-1, le=65535), Form(metavar="PORT")]
COUNT: Final = Form(metavar="COUNT")
SECONDS: Final = Form(metavar="SECONDS", unit="seconds")


class PluginSettings(BaseModel):
    """Where the driver's own folder is. Field descriptions are the help texts of the flags."""

    # A command validates one of these classes, which has the fields of its bases.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    driver_name: DriverName = Field(
        "npu.huawei.com",
        json_schema_extra=_NAMES,
        description="DRA driver name, also the vendor of the CDI kind",
    )
    kubelet_plugins_directory_path: AbsolutePath = Field(
        Path("/var/lib/kubelet/plugins"),
        json_schema_extra=_PLACES,
        description="folder in which the driver makes its own, for its socket and claim records",
    )

    @property
    def plugin_directory(self) -> Path:
        """The driver's own folder in the kubelet's plugins folder: sockets, locks and records."""
        return self.kubelet_plugins_directory_path / self.driver_name

    @classmethod
    def load(cls, flags: Mapping[str, str | None], environment: Mapping[str, str]) -> Self:
        """Validate flags, by field name, together with the process environment.

        Raises:
            ConfigError: Names each wrong flag or variable, its value, and what is expected.
        """
        values: dict[str, str] = {}
        origins: dict[str, str] = {}
        for name in cls.model_fields:
            given, variable = flags.get(name), environment_variable(name)
            if given is not None:
                values[name], origins[name] = given, flag(name)
            elif variable in environment:
                values[name], origins[name] = environment[variable], variable
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError("; ".join(refusals(cls, error, origins))) from None


class NodeSettings(PluginSettings):
    """Which NPUs a node has, and how they are published."""

    node_name: NodeName | None = Field(
        None,
        json_schema_extra=_NAMES,
        description="name of this Node; without it the name of the host is taken",
    )
    host_root: AbsolutePath = Field(
        Path("/"), json_schema_extra=_PLACES, description="folder where the host's root is mounted"
    )
    dev_root: AbsolutePath = Field(
        Path("/dev"), json_schema_extra=_PLACES, description="folder with the host's /dev"
    )
    sysfs_root: AbsolutePath = Field(
        Path("/sys"), json_schema_extra=_PLACES, description="folder with the host's /sys"
    )
    taint_effect: Annotated[str, Form(metavar="LEVEL=EFFECT,...")] = Field(
        "",
        json_schema_extra=_HEALTH,
        description="taint effect of each level of health, as LEVEL=None|NoSchedule|NoExecute "
        "separated by commas; levels are those of Huawei's fault table, Unmonitored and Network",
    )
    evict_after: Annotated[float, Field(ge=0, le=3600), SECONDS] = Field(
        0.0,
        json_schema_extra=_HEALTH,
        description="seconds that a fault must last before its taint is NoExecute, which evicts "
        "pods; until then it is NoSchedule",
    )
    device_plugin: Annotated[str, Form(metavar="SELECTOR[=RESOURCE],...")] = Field(
        "",
        json_schema_extra=_DEVICE_PLUGIN,
        description="NPUs to offer through the device plugin API instead of DRA: "
        "SELECTOR[=RESOURCE] separated by commas, where a selector is a physical id, a range such "
        "as 0-3, a family such as Ascend310P, or all; without a resource it is the one of "
        "Huawei's device plugin, such as huawei.com/Ascend910",
    )
    device_plugin_shares: Annotated[int, Field(ge=1, le=100), COUNT] = Field(
        1,
        json_schema_extra=_DEVICE_PLUGIN,
        description="how many pods may share one NPU of --device-plugin, each with a share as its "
        "device; 1 gives each NPU to one pod",
    )
    sharing: Literal["none", "shares"] = Field(
        "none",
        json_schema_extra=_PARTS,
        description="whether several claims may share one NPU: shares divides each NPU into shares "
        "for schedulers to count, where the API server keeps allowMultipleAllocations",
    )
    shares_per_npu: Annotated[int, Field(ge=2, le=63), COUNT] = Field(
        8,
        json_schema_extra=_PARTS,
        description="how many shares an NPU, or a module, has with --sharing=shares",
    )
    partitioning: Literal["none", "dynamic"] = Field(
        "none",
        json_schema_extra=_PARTS,
        description="whether NPUs are split into vNPUs: dynamic publishes every possible partition "
        "of an NPU, and creates the vNPU when a claim gets it; it needs an API server that keeps "
        "shared counters (Kubernetes 1.36 and later)",
    )

    @field_validator("device_plugin_shares")
    @classmethod
    def _of_a_resource(cls, value: int, info: ValidationInfo) -> int:
        if value > 1 and info.data.get("device_plugin") == "":
            raise ValueError(
                "no NPU is in a resource whose devices could be shares: set "
                f"{flag('device_plugin')} too, or leave this out"
            )
        return value

    @field_validator("partitioning")
    @classmethod
    def _not_beside_shares(cls, value: str, info: ValidationInfo) -> str:
        shares = info.data.get("device_plugin_shares", 1)
        divided = {
            f"{flag('sharing')}=shares": info.data.get("sharing") == "shares",
            f"{flag('device_plugin_shares')}={shares}": shares > 1,
        }
        for other, is_set in divided.items():
            if value == "dynamic" and is_set:
                raise ValueError(
                    "NPUs cannot be cut and divided into shares at once: set one of the two, this "
                    f"or {other}"
                )
        return value

    @property
    def shares(self) -> int:
        """How many shares each device has; 0 for whole devices."""
        return self.shares_per_npu if self.sharing == "shares" else 0


class MeetingSettings(NodeSettings):
    """Where the driver meets the kubelet, the container runtime and the API server."""

    kubelet_registrar_directory_path: AbsolutePath = Field(
        Path("/var/lib/kubelet/plugins_registry"),
        json_schema_extra=_PLACES,
        description="folder in which the kubelet looks for registration sockets",
    )
    kubelet_device_plugins_directory_path: AbsolutePath = Field(
        Path("/var/lib/kubelet/device-plugins"),
        json_schema_extra=_PLACES,
        description="folder with the sockets of the kubelet and of device plugins",
    )
    cdi_root: AbsolutePath = Field(
        Path("/etc/cdi"),
        json_schema_extra=_PLACES,
        description="folder in which the container runtime looks for CDI specs",
    )
    kubeconfig: AbsolutePath | None = Field(
        None,
        json_schema_extra=_PLACES,
        description="kubeconfig file; without it the pod's service account is used",
    )
    claim_status: bool = Field(
        True,
        json_schema_extra=_CLAIMS,
        description="whether the status of each prepared claim says what its NPUs are, their "
        "addresses, and whether they are ready; it needs the rights of k8s/base/claim-status.yaml",
    )


class Settings(MeetingSettings):
    """The settings of one daemon.

    The Node's name has no default: the name of the host is the pod's where the daemon runs.
    """

    node_name: NodeName = Field(
        json_schema_extra=_NAMES, description="name of this Node; also the name of the device pool"
    )
    pod_uid: PodUid | None = Field(
        None,
        json_schema_extra=_NAMES,
        description="UID of the driver's own pod: gives this instance its own socket names, so "
        "that the next one can start beside it",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", json_schema_extra=_LOG, description="least severe log line to print"
    )
    log_format: Literal["auto", "json", "text"] = Field(
        "auto",
        json_schema_extra=_LOG,
        description="form of log lines; auto is text on a terminal and JSON elsewhere",
    )
    device_profile: Literal["npu"] = Field(
        "npu", json_schema_extra=_NAMES, description="kind of device to serve"
    )
    pod_name: NodeName | None = Field(
        None,
        json_schema_extra=_NAMES,
        description="name of the driver's own pod: the kubelet's list of pods is trusted only once "
        "it contains this pod",
    )
    kubelet_pod_resources_directory_path: AbsolutePath = Field(
        Path("/var/lib/kubelet/pod-resources"),
        json_schema_extra=_PLACES,
        description="folder with the socket on which the kubelet lists pods and their devices",
    )
    label_node: bool = Field(
        False,
        json_schema_extra=_NAMES,
        description="whether the Node has labels that say which NPUs it has, and in which super "
        "pod, so that schedulers can place the pods of a job together; it needs the rights of "
        "k8s/node-labels",
    )

    container_library_path: Annotated[str, Form(metavar="PATH:...")] = Field(
        "/usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64/common"
        ":/usr/local/Ascend/driver/lib64/driver:/usr/local/dcmi",
        json_schema_extra=_CONTAINERS,
        description="folders with the Ascend driver's libraries in containers with an NPU, "
        "separated by colons; if empty, loaders find what the image sets",
    )
    container_libraries: Literal["ldcache", "env", "none"] = Field(
        "ldcache",
        json_schema_extra=_CONTAINERS,
        description="how the loaders of containers with an NPU find these libraries: ldcache puts "
        "the folders into the container's /etc/ld.so.cache, env into LD_LIBRARY_PATH, which "
        "replaces the image's own, none leaves it to the image",
    )
    extra_mount: Annotated[
        str, AfterValidator(_checked_mounts), Form(metavar="HOST[:CONTAINER],...")
    ] = Field(
        "",
        json_schema_extra=_CONTAINERS,
        description="files and folders of the host that containers with an NPU get besides the "
        "Ascend driver's, read-only, where they exist: HOST[:CONTAINER] separated by commas",
    )
    device_metadata: bool = Field(
        True,
        json_schema_extra=_CONTAINERS,
        description="whether containers get a file for each request of their claims, from which "
        "programs read the attributes and addresses of their NPUs",
    )
    healthcheck_port: Port = Field(
        -1,
        json_schema_extra=_ENDPOINTS,
        description="TCP port of the grpc.health.v1 service, -1 turns it off",
    )
    http_port: Port = Field(
        -1,
        json_schema_extra=_ENDPOINTS,
        description="TCP port of /metrics, /healthz and /readyz, -1 turns it off",
    )
    npu_metrics: bool = Field(
        True,
        json_schema_extra=_ENDPOINTS,
        description="whether /metrics asks NPUs for temperature, power, load, errors of memory"
        " and links",
    )
    health_poll_interval: Annotated[float, Field(ge=0.1, le=3600), SECONDS] = Field(
        5.0,
        json_schema_extra=_HEALTH,
        description="seconds between two readings of the NPUs' health",
    )

    @property
    def extra_mounts(self) -> tuple[tuple[str, str], ...]:
        """Paths on the host that containers get, each with its path there."""
        return _mounts(self.extra_mount)


def host_node_name() -> str:
    """The name that a kubelet gives its Node by default: the host's, in lower case.

    Raises:
        ConfigError: No Node can have it.
    """
    name = platform.node().lower()
    if not re.fullmatch(_SUBDOMAIN, name):
        raise ConfigError(
            f"{flag('node_name')} is missing, and no Node can have the name of this host, {name}: "
            f"set it or {environment_variable('node_name')}"
        )
    return name
