"""The opaque config that a ResourceClaim or DeviceClass may carry for this driver."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from trio_npu_dra.errors import InvalidOpaqueConfig

API_VERSION = "npu.huawei.com/v1alpha1"
KIND = "NpuConfig"

_PROBLEMS_TOLD = 3
_SHOWN = 60  # characters of a name or value


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
        raise InvalidOpaqueConfig(f"opaque config in {origin}: {_problems(error)}") from None


def _problems(error: ValidationError) -> str:
    """The first few, so that what to do still fits into an event of the pod."""
    told = [
        _explain(problem["type"], ".".join(str(part) for part in problem["loc"]), problem["input"])
        for problem in error.errors()[:_PROBLEMS_TOLD]
    ]
    untold = error.error_count() - len(told)
    return "; ".join([*told, f"and {untold} more"] if untold else told)


def _explain(problem: str, field: str, value: Any) -> str:
    expected = f"apiVersion {API_VERSION} and kind {KIND}"
    field, shown = _shortened(field), _shortened(repr(value))
    if not field:
        return f"the parameters are {shown}: write an object with {expected}"
    if problem == "missing":
        return f"{field} is missing: write {expected}"
    if problem == "extra_forbidden":
        return f"{field}={shown} is not known to this driver: remove it"
    return f"{field}={shown} is not supported: write {expected}"


def _shortened(text: str) -> str:
    """*text* in one line, or its beginning: the API server takes up to 10 KiB of parameters."""
    if not text.isprintable():
        text = repr(text)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
