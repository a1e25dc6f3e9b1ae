"""The opaque config that a ResourceClaim or DeviceClass may carry for this driver."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from trio_npu_dra.errors import InvalidOpaqueConfig

API_VERSION = "npu.huawei.com/v1alpha1"
KIND = "NpuConfig"


class NpuConfig(BaseModel):
    """The config object; it has no options yet, and says so to whoever sets one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)

    api_version: Literal["npu.huawei.com/v1alpha1"]
    kind: Literal["NpuConfig"]


def parse_config(parameters: Any, *, origin: str) -> NpuConfig:
    """Check the parameters of one opaque config.

    Args:
        parameters: The JSON value of `opaque.parameters`.
        origin: Who wrote it, in words for the pod's owner, such as `the ResourceClaim`.

    Raises:
        InvalidOpaqueConfig: Names each wrong field, its value, and what to do.
    """
    try:
        return NpuConfig.model_validate(parameters)
    except ValidationError as error:
        problems = "; ".join(
            _explain(problem["type"], ".".join(str(part) for part in problem["loc"]), value)
            for problem in error.errors()
            for value in [problem["input"]]
        )
        raise InvalidOpaqueConfig(f"opaque config in {origin}: {problems}") from None


def _explain(problem: str, field: str, value: Any) -> str:
    expected = f"apiVersion {API_VERSION} and kind {KIND}"
    if not field:
        return f"the parameters are {value!r}: write an object with {expected}"
    if problem == "missing":
        return f"{field} is missing: write {expected}"
    if problem == "extra_forbidden":
        return f"{field}={value!r} is not known to this driver: remove it"
    return f"{field}={value!r} is not supported: write {expected}"
