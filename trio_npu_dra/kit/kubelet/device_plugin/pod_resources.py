"""Which pods have which devices of device plugins, as the kubelet says when it is asked.

The kubelet tells a plugin neither which pod an allocation is for nor when that pod ends. Its
pod-resources API lists the pods that have not ended, with their devices. After a start, the kubelet
lists a pod only once it has read it from the API server: a list that lacks a pod then proves
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trio_npu_dra.kit.base.errors import KubeletSilent
from trio_npu_dra.kit.grpc import RpcError, methods, open_channel
from trio_npu_dra.kit.grpc._generated import v1

_CALL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevice:
    """A device that a pod has: its id in a resource, such as `vendor.com/device`."""

    namespace: str
    pod: str
    container: str  # the first that has it
    resource: str
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What the kubelet knows.

    Attributes:
        pods: Namespace and name of each pod.
        devices: The devices of these pods, each once for each pod.
    """

    pods: frozenset[tuple[str, str]]
    devices: tuple[PodDevice, ...]


async def list_pod_resources(socket: Path) -> PodResources:
    """Ask the kubelet for pod resources on its *socket*, which it replaces at each start.

    Raises:
        KubeletSilent: It does not answer.
    """
    try:
        async with open_channel(socket) as channel:
            reply = await channel.unary(
                methods.LIST_V1,
                v1.ListPodResourcesRequest(),
                timeout_seconds=_CALL_SECONDS,
            )
    except RpcError as error:
        raise KubeletSilent(f"the kubelet does not list pods on {socket}: {error}") from error
    first: dict[tuple[str, ...], str] = {}
    for pod in reply.pod_resources:
        for container in pod.containers:
            for given in container.devices:
                for id_ in given.device_ids:
                    device = pod.namespace, pod.name, given.resource_name, id_
                    first.setdefault(device, container.name)
    return PodResources(
        pods=frozenset((pod.namespace, pod.name) for pod in reply.pod_resources),
        devices=tuple(
            PodDevice(namespace=namespace, pod=name, container=container, resource=resource, id=id_)
            for (namespace, name, resource, id_), container in first.items()
        ),
    )
