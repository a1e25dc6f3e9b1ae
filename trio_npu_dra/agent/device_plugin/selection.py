"""Which chips an operator gives to device plugin resources; the rest is in the DRA pool. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from trio_npu_dra.agent.device_plugin.names import (
    MADE_LATER,
    USUAL,
    is_of_partitions,
    whole_resource,
)
from trio_npu_dra.ascend.model import Chip, ChipFamily
from trio_npu_dra.ascend.traits import TRAITS
from trio_npu_dra.kit.base.errors import ConfigError

_FLAG: Final = "--device-plugin"
_SHARES_FLAG: Final = "--device-plugin-shares"
_ALL: Final = "all"
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_RESOURCE: Final = re.compile(f"(?P<domain>{_DOMAIN})/(?P<name>{_NAME})", re.ASCII)
_NAME_LIMIT: Final = 34  # 63 characters have room for that, and for what a vNPU adds


@dataclass(frozen=True, slots=True, kw_only=True)
class _SelectionRule:
    """Some chips, and the resource to which they go."""

    ids: range | None = None  # physical ids; None for any
    family: ChipFamily | None = None  # None for any
    resource: str = ""  # empty for the usual one of their family

    def selects(self, chip: Chip) -> bool:
        return (self.ids is None or chip.physical_id in self.ids) and (
            self.family is None or chip.family is self.family
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """The operator's choice; the first rule that selects a chip decides."""

    rules: tuple[_SelectionRule, ...] = ()
    shares: int = 1  # how many pods share a chip

    @classmethod
    def parse(cls, text: str, *, shares: int = 1) -> Self:
        """Read `SELECTOR[=RESOURCE]`, separated by commas.

        A selector is a physical id, a range of them (`0-3`), a family (`Ascend310P`) or `all`.
        Without a resource a chip goes to that of its family (`names.USUAL`).

        Raises:
            ConfigError: Names the part that is wrong, and what is expected.
        """
        rules = tuple(_parse(part) for part in filter(None, text.split(",")))
        for rule in rules:
            if shares > 1 and rule.family is not None and not _has_shares(rule.family):
                raise ConfigError(
                    f"{_SHARES_FLAG}={shares}: the dies of an {rule.family} cannot be shared one "
                    f"by one: leave {rule.family} out of {_FLAG}, or set {_SHARES_FLAG}=1"
                )
        return cls(rules, shares)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def resource_of(self, chip: Chip) -> str | None:
        """The resource that a chip is for; None if it is for the DRA pool."""
        rule = next((rule for rule in self.rules if rule.selects(chip)), None)
        return (rule.resource or USUAL[chip.family]) if rule else None

    def shares_of(self, chip: Chip) -> int:
        """How many pods share the chip."""
        return self.shares if _has_shares(chip.family) else 1

    def names(self, resource: str) -> bool:
        """Whether a rule names the resource, or the resource of its vNPUs' chips."""
        whole = whole_resource(resource)
        return any(rule.resource == whole for rule in self.rules)


def _has_shares(family: ChipFamily) -> bool:
    """Whether a chip has its own share flag: the dies of a card have one together."""
    return TRAITS[family].dies_of_module == 1


def _parse(text: str) -> _SelectionRule:
    selector, equals, resource = text.partition("=")
    if equals:
        _check_resource(resource, text)
    if selector == _ALL:
        return _SelectionRule(resource=resource)
    if selector in set(ChipFamily):
        return _SelectionRule(family=ChipFamily(selector), resource=resource)
    match = _RANGE.fullmatch(selector)
    if match is None:
        families = ", ".join(ChipFamily)
        raise ConfigError(
            f"{_FLAG}={text}: {selector!r} selects nothing: it must be a physical id such as 3, a "
            f"range such as 0-3, a family ({families}) or {_ALL}"
        )
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ConfigError(f"{_FLAG}={text}: the range {selector} is empty")
    return _SelectionRule(ids=range(first, last + 1), resource=resource)


def _check_resource(resource: str, text: str) -> None:
    """Check that a kubelet takes it for an extended resource, and that it is of whole chips."""
    match = _RESOURCE.fullmatch(resource)
    if match is None or len(match["name"]) > _NAME_LIMIT or len(match["domain"]) > 200:
        raise ConfigError(
            f"{_FLAG}={text}: {resource!r} is no resource: it must look like "
            f"{USUAL[ChipFamily.ASCEND_910]}, with at most {_NAME_LIMIT} characters after the /"
        )
    if is_of_partitions(resource):
        raise ConfigError(
            f"{_FLAG}={text}: {resource!r} is a name for vNPUs: give that of whole NPUs, "
            f"{whole_resource(resource)}; NPUs that are split by hand get the other by themselves"
        )
    if resource == MADE_LATER:
        raise ConfigError(
            f"{_FLAG}={text}: {resource!r} is a name for vNPUs that are split when a pod starts: "
            f"leave it out, or give that of whole NPUs, {USUAL[ChipFamily.ASCEND_910]}"
        )
    if match["domain"].endswith("kubernetes.io") or match["domain"].startswith("requests."):
        raise ConfigError(
            f"{_FLAG}={text}: Kubernetes keeps the domain {match['domain']} to itself"
        )
