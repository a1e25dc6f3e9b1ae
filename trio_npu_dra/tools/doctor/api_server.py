"""What the API server says of this node, where one can be asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from trio_npu_dra.agent.claims.orphans import claims_among, is_needed
from trio_npu_dra.agent.holds.entry import Entry, EntryState
from trio_npu_dra.kit.api.claims import ObservedReader
from trio_npu_dra.kit.api.client import KubeClient, open_client
from trio_npu_dra.kit.api.credentials import load_credentials
from trio_npu_dra.kit.api.objects import FullNode, ResourceClaim, ResourceSlice
from trio_npu_dra.kit.base.errors import ConfigError, KubeError
from trio_npu_dra.revision import USER_AGENT
from trio_npu_dra.tools.doctor.finding import Finding, not_checked, ok, problem, warning
from trio_npu_dra.tools.doctor.places import listed

_PATIENCE_SECONDS = 5.0  # of one request: a person waits
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerView:
    """What was found.

    Attributes:
        kubelet: The kubelet's version, such as `v1.36.3`; empty if it is not known.
        runtime: The container runtime's, such as `containerd://2.1.6`; empty if it is not known.
        slices: This node's ResourceSlices; None if they could not be listed.
        serves_dra: Whether the API server has them; None if that is not known.
        unneeded: Claims that hold NPUs here although no pod needs them.
        unsaid: Claims whose status does not say what their NPUs are.
        unasked: Why something was not answered.
        silent: That the API server gave no answer at all; empty if it did, or was not asked.
    """

    kubelet: str = ""
    runtime: str = ""
    slices: tuple[ResourceSlice, ...] | None = None
    serves_dra: bool | None = None
    unneeded: tuple[Entry, ...] = ()
    unsaid: tuple[Entry, ...] = ()
    unasked: str = ""
    silent: str = ""


async def look(
    node_name: str | None, kubeconfig: Path | None, *, entries: Iterable[Entry], driver_name: str
) -> ServerView:
    """Ask the API server, if we know one; no error ends the examination.

    *entries* are the holders of NPUs here. Without *kubeconfig* the pod's service account counts.
    """
    if node_name is None:
        return ServerView(unasked="the name of this Node is not known")
    try:
        credentials = load_credentials(kubeconfig)
        async with open_client(
            credentials, user_agent=USER_AGENT, deadline=_PATIENCE_SECONDS
        ) as client:
            found = await _ask(client, node_name)
            if found.serves_dra:
                return await _with_claims(client, found, entries, driver_name)
            return found
    except ConfigError as error:
        return ServerView(unasked=str(error))
    except KubeError as error:
        text = str(error)
        return ServerView(silent=text) if error.status is None else ServerView(unasked=text)


async def _ask(client: KubeClient, node_name: str) -> ServerView:
    info = (await client.get(FullNode, node_name)).status.node_info
    found = ServerView(kubelet=info.kubelet_version, runtime=info.container_runtime_version)
    try:
        slices, _ = await client.list(ResourceSlice, field_selector=f"spec.nodeName={node_name}")
    except KubeError as error:
        if error.status != _NOT_FOUND:
            return replace(found, unasked=str(error))
        return replace(found, serves_dra=False)  # the path is not served; no object is missing
    return replace(found, serves_dra=True, slices=slices)


async def _with_claims(
    client: KubeClient, found: ServerView, entries: Iterable[Entry], driver_name: str
) -> ServerView:
    seen: list[ResourceClaim] = []
    reader = ObservedReader(client, (seen.append,))
    unneeded: list[Entry] = []
    unsaid: list[Entry] = []
    for entry in claims_among(entries):
        try:
            needed = await is_needed(entry, reader, driver_name=driver_name)
        except KubeError as error:
            found = replace(found, unasked=str(error))
            break
        if not needed:
            unneeded.append(entry)
        elif _lacks_status(entry, seen[-1], driver_name):
            unsaid.append(entry)
    return replace(found, unneeded=tuple(unneeded), unsaid=tuple(unsaid))


def _lacks_status(entry: Entry, claim: ResourceClaim, driver_name: str) -> bool:
    is_due = entry.state is EntryState.READY and not all(
        given.admin_access for given in entry.allocation
    )
    return is_due and all(device.driver != driver_name for device in claim.status.devices)


def judge(found: ServerView, *, claim_status: bool = True) -> Iterator[Finding]:
    """Whether DRA is served there; what others have published is for `dra_drivers` to judge.

    With *claim_status* the driver should write the status of claims.
    """
    if found.unsaid and claim_status:
        yield warning(
            "the status of claims does not say what their NPUs are: "
            f"{listed(sorted(map(str, found.unsaid)))}",
            "Nothing, if they were prepared just now. Else look at the driver's log: if the API "
            "server forbids it, apply k8s/base/claim-status.yaml, or set --claim-status=false; "
            "give this command that flag, too.",
        )
    for entry in found.unneeded:
        yield warning(
            f"claim {entry} holds {', '.join(entry.device_names)} on this node, and no pod needs "
            "it: it is deleted, not allocated to them, or reserved for no pod",
            "Nothing, if its pod has just ended. Else the kubelet has forgotten it, and the driver "
            "takes it back within 13 minutes, or one after another pod has asked for its NPU, once "
            "no process uses it.",
        )
    if found.serves_dra is False:
        yield problem(
            f"it does not serve resource.k8s.io/v1 (kubelet {found.kubelet or 'unknown'})",
            "Use Kubernetes 1.34 or newer, with the API group resource.k8s.io/v1 on.",
        )
    elif found.silent:
        yield problem(
            found.silent,
            "Let the driver reach that address. A NetworkPolicy must also let through the API "
            "server's own port, behind its Service (chart: networkPolicy.apiServerPorts).",
        )
    elif found.unasked:
        yield not_checked(
            f"not asked for versions and the ResourceSlices of others: {found.unasked}",
            "Run it in the driver's pod, or give --kubeconfig and --node-name.",
        )
    else:
        yield ok(f"serves DRA; this node has {len(found.slices or ())} ResourceSlices")
