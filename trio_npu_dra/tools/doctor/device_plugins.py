"""Other device plugins for NPUs: their sockets, and what the kubelet remembers of them.

Huawei's plugin has a socket for each kind of device (`Ascend910.sock`, `Ascend910-2c.sock`,
`davinci-mini.sock`, `npu.sock`: its user guide, chapter "Socket Files"), HAMi's one for each chip
(`Ascend910B4.sock`: its `internal/server/server.go`). Both register resources of `huawei.com`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError

from trio_npu_dra.agent.device_plugin.names import is_huaweis
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import device_plugin_socket
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, Socket, listed, read, sockets_in
from trio_npu_dra.tools.doctor.programs import running_pods

CHECKPOINT: Final = "kubelet_internal_checkpoint"

_FOR_NPUS: Final = re.compile(r"ascend|huawei|davinci|^npu(-core)?\.sock$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlugins:
    """What was found.

    Attributes:
        sockets: Those for NPUs that are not this driver's.
        devices: How many healthy devices the kubelet knows of each resource of Huawei's.
        pods: How many running pods have devices of each.
        served: The resources among these that this driver serves now.
        unread: Why something could not be read.
    """

    sockets: tuple[Socket, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    pods: Mapping[str, int] = field(default_factory=dict)
    served: frozenset[str] = frozenset()
    unread: str = ""


class _Pod(BaseModel):
    uid: str = Field(alias="PodUID")
    resource: str = Field(alias="ResourceName")


class _Data(BaseModel):
    pods: tuple[_Pod, ...] | None = Field(None, alias="PodDeviceEntries")
    devices: dict[str, list[Any] | None] | None = Field(None, alias="RegisteredDevices")


class _Checkpoint(BaseModel):
    data: _Data = Field(alias="Data")


def look(places: Places) -> DevicePlugins:
    """Look at the kubelet's folder of device plugins."""
    folder = places.device_plugins
    try:
        sockets = sockets_in(folder)
        data = _checkpoint(read(folder / CHECKPOINT)).data
    except StorageError as error:
        return DevicePlugins(unread=str(error))
    except ValidationError:
        return DevicePlugins(unread=f"{folder / CHECKPOINT} is not what kubelets write")
    live = {socket.name for socket in sockets if socket.listens}
    devices = {name: len(ids or ()) for name, ids in (data.devices or {}).items()}
    users = {(pod.uid, pod.resource) for pod in data.pods or ()}
    # The kubelet takes those that have ended out of the file only when it next has to write it.
    running = running_pods(places, {uid for uid, _ in users})
    pods = Counter(resource for uid, resource in users if uid in running)
    return DevicePlugins(
        sockets=tuple(
            socket
            for socket in sockets
            if _FOR_NPUS.search(socket.name)
            and not socket.name.startswith(f"{places.driver_name}_")
        ),
        devices={name: count for name, count in devices.items() if is_huaweis(name)},
        pods={name: count for name, count in pods.items() if is_huaweis(name)},
        served=frozenset(
            name
            for name in devices.keys() | pods.keys()
            if device_plugin_socket(folder, places.driver_name, name).name in live
        ),
    )


def _checkpoint(content: bytes | None) -> _Checkpoint:
    return _Checkpoint.model_validate_json(content or b'{"Data": {}}')


def judge(found: DevicePlugins) -> Iterator[Finding]:
    """What that means."""
    if found.unread:
        yield not_checked(found.unread, "Run it as root, on the node or in the driver's pod.")
        return
    live = [socket.name for socket in found.sockets if socket.listens]
    if live:
        yield problem(
            f"another device plugin for NPUs (Huawei's, or HAMi's) listens on {listed(live)}: it "
            "hands out the NPUs that this driver hands out",
            "Keep its DaemonSet off this node, or this driver's.",
        )
    waiting = {name: count for name, count in found.pods.items() if name not in found.served}
    for name, count in sorted(waiting.items()):
        yield problem(
            f"{count} {'pod' if count == 1 else 'pods'} still running with {name} from another "
            "plugin; this driver does not account for them",
            "Wait for these pods to end before claims get NPUs here, or let this driver serve the "
            "resource with --device-plugin, which makes them count.",
        )
    left = {
        name: count
        for name, count in found.devices.items()
        if count and name not in found.served | waiting.keys() and not live
    }
    for name, count in sorted(left.items()):
        yield warning(
            f"the kubelet still knows {count} of {name}, and nobody serves them",
            "Wait: the kubelet forgets them five minutes after their plugin has ended.",
        )
    if not live and not waiting and not left:
        ours = f"; this driver serves {listed(sorted(found.served))}" if found.served else ""
        yield ok(f"no other one for NPUs{ours}")
