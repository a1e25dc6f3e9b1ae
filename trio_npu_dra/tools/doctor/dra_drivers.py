"""Other DRA drivers for NPUs: what they registered with the kubelet, and what they published.

Huawei's own DRA driver is called as this one is, `npu.huawei.com`, and its devices `ascend910-3`;
HAMi's is `ascend.project-hami.io`. openFuyao's and cosdt's have the name that a flag gives them. So
a driver is known by the words in its name, and one with this driver's name by what it published, or
by a registration that belongs to none of our instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, listed, live_in, sockets_in

_REGISTRATION: Final = "-reg.sock"
_POD_UID: Final = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_ASCEND: Final = re.compile(r"ascend|huawei|davinci", re.IGNORECASE)
_NPU: Final = re.compile(r"npu", re.IGNORECASE)
_HUAWEIS_DEVICE: Final = re.compile(r"Ascend", re.IGNORECASE)
_HUAWEIS_ATTRIBUTES: Final = {"deviceType", "physicId"}
"""Of Huawei's driver; on a 950 its devices have the same names as ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraDrivers:
    """What was found.

    Attributes:
        registered: Sockets on which others than our instances listen, by the driver's name.
        served: Sockets of other drivers in their folders, by the driver's name.
        unread: Why something could not be read.
    """

    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: str = ""


def look(places: Places, instances: tuple[str | None, ...]) -> DraDrivers:
    """Look at the kubelet's folders.

    Args:
        places: Where they are.
        instances: The pod UIDs of our instances that run.
    """
    ours = {
        Endpoints(
            driver_name=places.driver_name,
            plugin_directory=places.state,
            registrar_directory=places.registrations,
            pod_uid=uid,
        ).registration.name
        for uid in instances
    }
    registered: dict[str, tuple[str, ...]] = {}
    try:
        for socket in sockets_in(places.registrations):
            name = socket.name
            if socket.listens and name.endswith(_REGISTRATION) and name not in ours:
                driver = _POD_UID.sub("", name.removesuffix(_REGISTRATION))
                registered[driver] = (*registered.get(driver, ()), name)
        folders = sorted(path for path in places.plugins.iterdir() if path.is_dir())
    except (StorageError, OSError) as error:
        return DraDrivers(unread=str(error))
    served = {
        folder.name: live_in(folder) for folder in folders if folder.name != places.driver_name
    }
    return DraDrivers(
        registered=registered, served={name: live for name, live in served.items() if live}
    )


def judge(
    found: DraDrivers, slices: tuple[ResourceSlice, ...] | None, *, driver_name: str
) -> Iterator[Finding]:
    """What that means.

    Args:
        found: What the kubelet has.
        slices: What is published of this node; None if that is not known.
        driver_name: This driver's name.
    """
    if found.unread:
        yield not_checked(found.unread, "Run it as root, on the node or in the driver's pod.")
    findings = [*_namesakes(found, slices or (), driver_name)]
    evidence: dict[str, list[str]] = {}
    for where in (found.registered, found.served):
        for name, sockets in where.items():
            evidence.setdefault(name, []).extend(sockets)
    for slice_ in slices or ():
        name = slice_.spec.driver
        evidence.setdefault(name, []).append(f"ResourceSlice {slice_.metadata.name}")
    for name, seen in sorted(evidence.items()):
        if name != driver_name and (_ASCEND.search(name) or _NPU.search(name)):
            findings.append(_other(name, seen))
    yield from findings
    if not findings and not found.unread:
        yield ok("no other one for NPUs")


def _other(name: str, seen: list[str]) -> Finding:
    if _ASCEND.search(name):
        return problem(
            f"the driver {name} serves NPUs here too ({listed(seen)}): both would give the same "
            "NPU to two claims",
            "Keep its DaemonSet off this node, or this driver's.",
        )
    return warning(
        f"the driver {name} runs here ({listed(seen)}), which may be one for Ascend NPUs",
        "If it is, keep its DaemonSet off this node, or this driver's.",
    )


def _namesakes(
    found: DraDrivers, slices: tuple[ResourceSlice, ...], driver_name: str
) -> Iterator[Finding]:
    if sockets := found.registered.get(driver_name):
        yield problem(
            f"another driver is registered as {driver_name} ({listed(sockets)}), which is also the "
            "name of Huawei's own DRA driver: the kubelet calls only one of the two",
            "Take the other driver's DaemonSet off this node, then restart this driver's pod.",
        )
    for slice_ in slices:
        if slice_.spec.driver == driver_name and _is_huaweis(slice_):
            yield problem(
                f"ResourceSlice {slice_.metadata.name} of {driver_name} is of Huawei's DRA driver: "
                "schedulers give its devices to claims that this driver cannot prepare",
                "Take Huawei's driver off this node, then delete this ResourceSlice.",
            )


def _is_huaweis(slice_: ResourceSlice) -> bool:
    return any(
        _HUAWEIS_DEVICE.match(device.name) or not _HUAWEIS_ATTRIBUTES.isdisjoint(device.attributes)
        for device in slice_.spec.devices
    )
