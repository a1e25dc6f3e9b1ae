"""The taints of an NPU for its health, by the operator's policy, and for leaving the pool; pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Self

from trio_npu_dra.ascend.model import ChipHealth, Fault, FaultLevel
from trio_npu_dra.ascend.offers import LEAVING
from trio_npu_dra.kit.api.objects import DeviceTaint, rfc3339
from trio_npu_dra.kit.base.errors import ConfigError

UNMONITORED: Final = "Unmonitored"
NETWORK: Final = "Network"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it, from the weakest to the strongest."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


_STRENGTHS: Final = {effect: strength for strength, effect in enumerate(TaintEffect)}

_DEFAULTS: Final[Mapping[str, TaintEffect]] = MappingProxyType(
    {
        FaultLevel.SUB_HEALTH: TaintEffect.NONE,
        FaultLevel.RESTART_REQUEST: TaintEffect.NO_SCHEDULE,
        FaultLevel.RESTART_BUSINESS: TaintEffect.NO_SCHEDULE,
        FaultLevel.FREE_RESTART_NPU: TaintEffect.NO_SCHEDULE,
        FaultLevel.RESTART_NPU: TaintEffect.NO_EXECUTE,
        FaultLevel.PRE_SEPARATE_NPU: TaintEffect.NO_SCHEDULE,
        FaultLevel.SEPARATE_NPU: TaintEffect.NO_EXECUTE,
        FaultLevel.MANUALLY_SEPARATE_NPU: TaintEffect.NO_EXECUTE,
        UNMONITORED: TaintEffect.NO_SCHEDULE,
        NETWORK: TaintEffect.NO_SCHEDULE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintPolicy:
    """Which taint effect each state of health has."""

    domain: str  # prefix of the taints' keys: the driver's name
    # By fault level, and for `UNMONITORED` and `NETWORK`; other states add no taint
    effects: Mapping[str, TaintEffect] = field(default_factory=lambda: _DEFAULTS)

    @classmethod
    def parse(cls, text: str, *, domain: str) -> Self:
        """The default policy with changes, `SeparateNPU=NoSchedule,Network=None`.

        Raises:
            ConfigError: A level or an effect does not exist; the message names it and those that
                do.
        """
        effects = dict(_DEFAULTS)
        for word in filter(None, text.split(",")):
            level, _, effect = word.partition("=")
            if level not in effects:
                raise ConfigError(
                    f"--taint-effect={word}: no level {level!r}; there are {', '.join(effects)}"
                )
            if effect not in set(TaintEffect):
                raise ConfigError(
                    f"--taint-effect={word}: no effect {effect!r}; "
                    f"there are {', '.join(TaintEffect)}"
                )
            effects[level] = TaintEffect(effect)
        return cls(domain=domain, effects=effects)

    def taints(self, health: ChipHealth, *, leaving: bool = False) -> tuple[DeviceTaint, ...]:
        """The taints of an NPU: for faults, if it is unmonitored, for its network, if it leaves.

        Of several faults the one with the strongest effect decides, then the one with the worst
        level.
        """
        found = []
        worst = {
            (_STRENGTHS[effect], fault.level.rank): (effect, fault.level)
            for fault in health.faults
            if (effect := self._effect(fault)) is not None
        }
        if worst:
            effect, level = worst[max(worst)]
            since = min(fault.since for fault in health.faults if fault.level is level)
            added = rfc3339(since) if since else None  # then the API server says when
            found.append(self._taint("fault", effect, value=level, time_added=added))
        if health.unmonitored and UNMONITORED in self.effects:
            found.append(self._taint("unmonitored", self.effects[UNMONITORED]))
        if health.network and NETWORK in self.effects:
            found.append(self._taint("network", self.effects[NETWORK]))
        if leaving:
            found.append(self._taint(LEAVING, TaintEffect.NO_SCHEDULE))
        return tuple(found)

    def _effect(self, fault: Fault) -> TaintEffect | None:
        """What a fault does to pods; it evicts none before it has lasted long enough."""
        effect = self.effects.get(fault.level)
        is_early = effect is TaintEffect.NO_EXECUTE and not fault.is_settled
        return TaintEffect.NO_SCHEDULE if is_early else effect

    def kept_taints(
        self, health: ChipHealth, kept: Collection[TaintEffect], *, leaving: bool = False
    ) -> tuple[DeviceTaint, ...] | None:
        """The taints of an NPU on an API server that keeps taints with some effects only.

        A taint with the effect `None` keeps no pod away and may be missing.

        Returns:
            `None` if another taint would be missing: then the NPU must not be published.
        """
        taints = self.taints(health, leaving=leaving)
        remaining = tuple(taint for taint in taints if taint.effect in kept)
        needed = (taint for taint in taints if taint.effect != TaintEffect.NONE)
        return remaining if all(taint in remaining for taint in needed) else None

    def _taint(
        self,
        key: str,
        effect: TaintEffect,
        *,
        value: str | None = None,
        time_added: str | None = None,
    ) -> DeviceTaint:
        return DeviceTaint(
            key=f"{self.domain}/{key}", value=value, effect=effect, time_added=time_added
        )
