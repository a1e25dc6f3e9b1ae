"""Other DRA drivers for NPUs: what they registered with the kubelet, and what they published.

Huawei's own DRA driver is called as this one is, `npu.huawei.com`, and its devices `ascend910-3`;
HAMi's is `ascend.project-hami.io`. openFuyao's and cosdt's have the name that a flag gives them. So
a driver is known by the words in its name, and one with this driver's name by what it published, or
by a registration that belongs to none of our instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from trio_npu_dra.kit.api.objects import ResourceSlice
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import Endpoints
from trio_npu_dra.tools.doctor.finding import Finding, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, inside, listed, live_in, not_read, sockets_in

_REGISTRATION: Final = "-reg.sock"
_POD_UID: Final = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
_ASCEND: Final = re.compile(r"ascend|huawei|davinci", re.IGNORECASE)
_NPU: Final = re.compile(r"npu", re.IGNORECASE)
_HUAWEIS_DEVICE: Final = re.compile(r"Ascend", re.IGNORECASE)
_HUAWEIS_ATTRIBUTES: Final = {"deviceType", "physicId"}
"""Of Huawei's driver; on a 950 its devices have the same names as ours."""


def check(
    places: Places, instances: Iterable[str | None], slices: tuple[ResourceSlice, ...]
) -> Iterator[Finding]:
    """Check registrations, sockets and this node's ResourceSlices of other drivers.

    *instances* are the pod UIDs of our running instances.
    """
    evidence: dict[str, list[str]] = {}
    is_read = True
    try:
        for driver, name in _registrations(places, instances):
            evidence.setdefault(driver, []).append(name)
        folders = inside(places.plugins)
    except StorageError as error:
        yield not_read(error)
        is_read, folders, evidence = False, [], {}
    namesakes = evidence.pop(places.driver_name, [])
    for folder in folders:
        if folder.name != places.driver_name and (live := live_in(folder)):
            evidence.setdefault(folder.name, []).extend(live)
    for slice_ in slices:
        if slice_.spec.driver != places.driver_name:
            name = f"ResourceSlice {slice_.metadata.name}"
            evidence.setdefault(slice_.spec.driver, []).append(name)
    findings = [
        *_namesakes(namesakes, slices, places.driver_name),
        *(
            _other(name, seen)
            for name, seen in sorted(evidence.items())
            if _ASCEND.search(name) or _NPU.search(name)
        ),
    ]
    yield from findings
    if not findings and is_read:
        yield ok("no other one for NPUs")


def _registrations(places: Places, instances: Iterable[str | None]) -> Iterator[tuple[str, str]]:
    """The drivers that registered, each with its socket; none of our instances.

    Raises:
        StorageError: The folder is missing or cannot be read.
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
    for socket in sockets_in(places.registrations):
        name = socket.name
        if socket.listens and name.endswith(_REGISTRATION) and name not in ours:
            yield _POD_UID.sub("", name.removesuffix(_REGISTRATION)), name


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
    sockets: list[str], slices: tuple[ResourceSlice, ...], driver_name: str
) -> Iterator[Finding]:
    if sockets:
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
