"""What the API server made of the slices it was sent; pure but for a log line.

A server without a feature drops its fields, and rewrites quantities. Without this memory the
publisher would try to repair the same difference forever.
"""

from __future__ import annotations

import logging
from typing import TypeAlias

from trio_npu_dra.kit.api.objects import CounterSet, Device, ResourceSliceSpec
from trio_npu_dra.kit.pool.taint_times import untimed, with_times_of

log = logging.getLogger(__name__)

_Content: TypeAlias = tuple[tuple[Device, ...], tuple[CounterSet, ...]]
"""Devices without the times of their taints, and counter sets."""


class StoredForms:
    """The slices that the API server stores in another form than it was sent.

    A stored form applies only to exactly what was sent: the API server keeps a field whose feature
    is off if the stored slice already uses it, so one slice says nothing about another.
    """

    def __init__(self) -> None:
        self._forms: dict[str, tuple[_Content, _Content]] = {}  # by what comes first in a slice
        self._logged: set[str] = set()

    @property
    def dropped(self) -> frozenset[str]:
        """Fields that were sent and not stored, by their names on the wire."""
        return frozenset(self._changed()[0])

    def as_stored(self, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        """The spec as the API server would store it."""
        sent, stored = self._forms.get(_first(spec), (None, None))
        if stored is None or sent != _content(spec):
            return spec
        timed = {device.name: device for device in spec.devices}
        devices = tuple(with_times_of(timed.get(device.name), device) for device in stored[0])
        return spec.model_copy(update={"devices": devices, "shared_counters": stored[1]})

    def learn(self, sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> None:
        """Compare what was sent with what was stored; log each new kind of difference once."""
        self._forms.pop(_first(sent), None)
        if _content(sent) != _content(stored):
            self._forms[_first(sent)] = _content(sent), _content(stored)
        dropped, rewritten = self._changed()
        for fields, message in (
            (dropped, "the API server dropped fields of ResourceSlices; devices are without"),
            (rewritten, "the API server stored fields of ResourceSlices in another form than sent"),
        ):
            if fields - self._logged:
                log.warning(message, extra={"fields": sorted(fields - self._logged)})
            self._logged |= fields

    def forget(self) -> bool:
        """Expect again that everything is stored as it is sent, as a newer API server may do.

        Returns:
            Whether anything was expected in another form until now.
        """
        knew = bool(self._forms)
        self._forms.clear()
        return knew

    def _changed(self) -> tuple[set[str], set[str]]:
        """The fields that were dropped, and those that were rewritten."""
        dropped: set[str] = set()
        rewritten: set[str] = set()
        for (devices, counters), (stored_devices, stored_counters) in self._forms.values():
            for sent, stored in zip(devices, stored_devices, strict=False):
                before, after = sent.to_wire(), stored.to_wire()
                dropped |= before.keys() - after.keys()
                rewritten |= {field for field in after if before.get(field) != after[field]}
            if counters != stored_counters:
                (rewritten if stored_counters else dropped).add("sharedCounters")
        return dropped, rewritten - dropped


def _content(spec: ResourceSliceSpec) -> _Content:
    return tuple(untimed(device) for device in spec.devices), spec.shared_counters


def _first(spec: ResourceSliceSpec) -> str:
    """The name of its first counter set or device; a slice of ours has one or the other."""
    counters = [part.name for part in spec.shared_counters]
    return [*counters, *(device.name for device in spec.devices), ""][0]
