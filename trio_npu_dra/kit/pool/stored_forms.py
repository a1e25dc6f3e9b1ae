"""What the API server made of the slices it was sent; pure but for a log line.

A server without a feature drops its fields, and rewrites quantities. Without this memory the
publisher would try to repair the same difference forever.
"""

from __future__ import annotations

import logging
from typing import Final

from trio_npu_dra.kit.api.objects import CounterSet, Device, ResourceSliceSpec
from trio_npu_dra.kit.pool.taint_times import untimed, with_times_of

log = logging.getLogger(__name__)

_FEATURES: Final = {
    "taints": "DRADeviceTaints",
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "bindsToNode": "DRADeviceBindingConditions",
    "bindingConditions": "DRADeviceBindingConditions",
    "bindingFailureConditions": "DRADeviceBindingConditions",
}
"""Feature gates of Kubernetes by the field that is dropped where they are off."""


class StoredForms:
    """The parts of slices that the API server stores in another form than it was sent.

    A stored form applies only to the exact value that was sent: the API server keeps a field whose
    feature is off if the stored slice already uses it, so one slice says nothing about another.
    """

    def __init__(self) -> None:
        self._devices: dict[str, tuple[Device, Device]] = {}
        self._counters: dict[str, tuple[CounterSet, CounterSet | None]] = {}
        self._logged: frozenset[str] = frozenset()

    @property
    def dropped(self) -> frozenset[str]:
        """Fields that were sent and not stored, by their names on the wire."""
        return frozenset(
            field
            for sent, stored in self._devices.values()
            for field in sent.to_wire().keys() - stored.to_wire().keys()
        ) | frozenset("sharedCounters" for _, stored in self._counters.values() if stored is None)

    def as_stored(self, spec: ResourceSliceSpec) -> ResourceSliceSpec:
        """The spec as the API server would store it."""
        devices = tuple(self._device(device) for device in spec.devices)
        counters = tuple(stored for sent in spec.shared_counters if (stored := self._counter(sent)))
        return spec.model_copy(update={"devices": devices, "shared_counters": counters})

    def learn(self, sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> None:
        """Compare what was sent with what was stored; log each new kind of difference once."""
        devices = {device.name: device for device in stored.devices}
        for device in sent.devices:
            expected, form = untimed(device), untimed(devices.get(device.name, device))
            self._devices.pop(device.name, None)
            if form != expected:
                self._devices[device.name] = (expected, form)
        counters = {part.name: part for part in stored.shared_counters}
        for part in sent.shared_counters:
            self._counters.pop(part.name, None)
            if counters.get(part.name) != part:
                self._counters[part.name] = (part, counters.get(part.name))
        self._log_changes()

    def forget(self) -> bool:
        """Expect again that everything is stored as it is sent, as a newer API server may do.

        Returns:
            Whether anything was expected in another form until now.
        """
        knew = bool(self._devices or self._counters)
        self._devices.clear()
        self._counters.clear()
        return knew

    def _device(self, device: Device) -> Device:
        sent, stored = self._devices.get(device.name, (None, device))
        return with_times_of(device, stored) if sent == untimed(device) else device

    def _counter(self, part: CounterSet) -> CounterSet | None:
        sent, stored = self._counters.get(part.name, (None, part))
        return stored if sent == part else part

    def _log_changes(self) -> None:
        changed: set[str] = set()
        for sent, stored in self._devices.values():
            before, after = sent.to_wire(), stored.to_wire()
            changed.update(field for field in after if before.get(field) != after[field])
        if any(stored is not None for _, stored in self._counters.values()):
            changed.add("sharedCounters")
        dropped = self.dropped
        rewritten = frozenset(changed) - dropped
        if fields := dropped - self._logged:
            log.warning(
                "the API server dropped fields of ResourceSlices; devices are published without",
                extra={
                    "fields": sorted(fields),
                    # The feature gates that are probably off.
                    "features": sorted({_FEATURES[each] for each in fields & _FEATURES.keys()}),
                },
            )
        if fields := rewritten - self._logged:
            log.warning(
                "the API server stored fields of ResourceSlices in another form than sent",
                extra={"fields": sorted(fields)},
            )
        self._logged |= dropped | rewritten
