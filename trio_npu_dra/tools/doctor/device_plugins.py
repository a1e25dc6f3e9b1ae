"""Other device plugins for NPUs: their sockets, and what the kubelet remembers of them.

Huawei's plugin has a socket for each kind of device (`Ascend910.sock`, `Ascend910-2c.sock`,
`davinci-mini.sock`, `npu.sock`: its user guide, chapter "Socket Files"), HAMi's one for each chip
(`Ascend910B4.sock`: its `internal/server/server.go`). Both register resources of `huawei.com`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, Field, ValidationError

from trio_npu_dra.agent.device_plugin.names import is_huaweis
from trio_npu_dra.kit.base.errors import StorageError
from trio_npu_dra.kit.kubelet.endpoints import device_plugin_socket
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import Places, listed, not_read, read, sockets_in
from trio_npu_dra.tools.doctor.programs import running_pods

CHECKPOINT: Final = "kubelet_internal_checkpoint"

_FOR_NPUS: Final = re.compile(r"ascend|huawei|davinci|^npu(-core)?\.sock$", re.IGNORECASE)


class _Pod(BaseModel):
    uid: str = Field(alias="PodUID")
    resource: str = Field(alias="ResourceName")


class _Data(BaseModel):
    pods: tuple[_Pod, ...] | None = Field(None, alias="PodDeviceEntries")
    devices: dict[str, list[Any] | None] | None = Field(None, alias="RegisteredDevices")


class _Checkpoint(BaseModel):
    data: _Data = Field(alias="Data")


def check(places: Places) -> Iterator[Finding]:
    """Check the sockets of device plugins, and the kubelet's file."""
    folder = places.device_plugins
    try:
        sockets = sockets_in(folder)
        content = read(folder / CHECKPOINT) or b'{"Data": {}}'
        data = _Checkpoint.model_validate_json(content).data
    except StorageError as error:
        yield not_read(error)
        return
    except ValidationError:
        yield not_checked(f"{folder / CHECKPOINT} is not what kubelets write")
        return
    devices = {name: len(ids or ()) for name, ids in (data.devices or {}).items()}
    pods = _running_users(places, data)
    live = {socket.name for socket in sockets if socket.listens}
    served = {
        name
        for name in devices.keys() | pods.keys()
        if device_plugin_socket(folder, places.driver_name, name).name in live
    }
    ours = f"{places.driver_name}_"
    others = sorted(name for name in live if _FOR_NPUS.search(name) and not name.startswith(ours))
    unserved = {name: pods[name] for name in pods.keys() - served if is_huaweis(name)}
    problems = [*_problems(others, unserved)]
    stale = devices.keys() - served - pods.keys() if not others else ()
    problems += (
        warning(
            f"the kubelet still knows {devices[name]} of {name}, and no plugin serves them",
            "Wait: the kubelet forgets them five minutes after their plugin has ended.",
        )
        for name in sorted(filter(is_huaweis, stale))
        if devices[name]
    )
    yield from problems
    if not problems:
        listing = f"; this driver serves {listed(sorted(served))}" if served else ""
        yield ok(f"no other one for NPUs{listing}")


def _running_users(places: Places, data: _Data) -> Counter[str]:
    """How many running pods have devices of each resource.

    The kubelet removes pods that have ended from its file only when it next has to write it.
    """
    users = {(pod.uid, pod.resource) for pod in data.pods or ()}
    running = running_pods(places, {uid for uid, _ in users})
    return Counter(resource for uid, resource in users if uid in running)


def _problems(others: Sequence[str], pods: Mapping[str, int]) -> Iterator[Finding]:
    if others:
        yield problem(
            f"another device plugin for NPUs (Huawei's, or HAMi's) listens on {listed(others)}: it "
            "hands out the NPUs that this driver hands out",
            "Keep its DaemonSet off this node, or this driver's.",
        )
    for name, count in sorted(pods.items()):
        verb = "pod still uses" if count == 1 else "pods still use"
        yield problem(
            f"{count} {verb} {name} from another plugin; this driver does not account for them",
            "Wait for these pods to end before claims get NPUs here, or let this driver serve the "
            "resource with --device-plugin, which makes them count.",
        )
