"""URLs of the API server, with valid names alone: no name changes the path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypedDict
from urllib.parse import quote, urlencode

from trio_npu_dra.kit.api.objects import KubeObject
from trio_npu_dra.kit.api.parsing import shortened
from trio_npu_dra.kit.base.errors import Invalid

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAMESPACE_LIMIT: Final = 63
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME_LIMIT: Final = 253


def is_label(name: str) -> bool:
    """Whether it is a DNS label, as namespaces, and claims in a pod, are called."""
    return len(name) <= _NAMESPACE_LIMIT and _NAMESPACE.fullmatch(name) is not None


class Where(TypedDict, total=False):
    """Which objects of a kind; each part that is left out allows all.

    Attributes:
        namespace: Theirs.
        field_selector: Such as `spec.nodeName=n1`.
        label_selector: Such as `app=train,role in (worker)`.
    """

    namespace: str | None
    field_selector: str
    label_selector: str


def many(kind: type[KubeObject], where: Where, **parameters: str) -> str:
    """The path of the objects of a kind that *where* allows, with the parameters except empty ones.

    Raises:
        Invalid: No namespace can have that name.
    """
    return collection(
        kind,
        where.get("namespace"),
        fieldSelector=where.get("field_selector", ""),
        labelSelector=where.get("label_selector", ""),
        **parameters,
    )


def collection(kind: type[KubeObject], namespace: str | None = None, **parameters: str) -> str:
    """The path of all objects of a kind, with the given parameters except empty ones.

    Raises:
        Invalid: No namespace can have that name.
    """
    root = "/api/" if "/" not in kind.group_version else "/apis/"
    scope = ""
    if kind.namespaced and namespace:
        _check("namespace", namespace, _NAMESPACE, _NAMESPACE_LIMIT)
        scope = f"/namespaces/{quote(namespace, safe='')}"
    return f"{root}{kind.group_version}{scope}/{kind.plural}{_query(parameters)}"


def single(
    kind: type[KubeObject],
    name: str,
    namespace: str | None = None,
    *,
    subresource: str = "",
    **parameters: str,
) -> str:
    """The path of one object or a part of it, with the given parameters except empty ones.

    Raises:
        Invalid: No object, or no namespace, can have that name.
    """
    path = collection(kind, namespace)
    _check(f"name in {kind.plural}", name, _NAME, _NAME_LIMIT)
    part = f"/{subresource}" if subresource else ""
    return f"{path}/{quote(name, safe='')}{part}{_query(parameters)}"


def _query(parameters: Mapping[str, str]) -> str:
    given = {key: value for key, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""


def _check(what: str, value: str, allowed: re.Pattern[str], limit: int) -> None:
    if len(value) > limit or not allowed.fullmatch(value):
        raise Invalid(
            f"{shortened(repr(value))} is no {what}: it must be 1 to {limit} lower case letters, "
            "digits and '-'"
            + (" in parts joined by '.'" if allowed is _NAME else "")
            + ", with a letter or digit at both ends"
        )
