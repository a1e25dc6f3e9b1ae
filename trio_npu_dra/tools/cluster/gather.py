"""Reads the cluster from the API server; where a right is missing, the view says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from trio_npu_dra.kit.api.client import KubeClient
from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import FullNode, KubeObject, ObjectMeta
from trio_npu_dra.kit.api.pages import Listed
from trio_npu_dra.kit.base.errors import Forbidden, KubeError
from trio_npu_dra.tools.cluster.inventory import ClusterView, with_rules
from trio_npu_dra.tools.cluster.objects import (
    ADMIN_LABEL,
    AnySlice,
    Claim,
    DeviceClass,
    DeviceTaintRule,
    Namespace,
    Pod,
)
from trio_npu_dra.tools.cluster.said import Doubt, Said

K = TypeVar("K", bound=KubeObject)

_PAGES: Final[dict[type[KubeObject], int]] = {AnySlice: 5, Claim: 200, FullNode: 50, Pod: 50}
"""Objects in one answer, by their usual size; a full slice has 13,000 values."""
_PAGE: Final = 100
_FEW: Final = 5
"""How many unreadable objects are named."""
_LOOKS: Final[dict[type[KubeObject], str]] = {
    AnySlice: "its devices look absent",
    Claim: "what it holds looks free",
    Pod: "what it uses looks free",
    DeviceTaintRule: "its taint looks absent",
}
_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"


async def read_devices(client: KubeClient) -> tuple[ClusterView, dict[type[KubeObject], str]]:
    """Slices with the taints of rules, claims, and the versions from which both can be watched.

    Raises:
        KubeError: Refused or unreachable.
    """
    slices = await _all(client, AnySlice)
    claims = await _all(client, Claim)
    versions: dict[type[KubeObject], str] = {AnySlice: slices.version, Claim: claims.version}
    doubts: list[Said] = [*unread(AnySlice, slices), *unread(Claim, claims)]
    tainted = with_rules(slices.objects, await _taint_rules(client, doubts))
    return ClusterView(slices=tainted, claims=claims.objects, doubts=tuple(doubts)), versions


async def read_cluster(client: KubeClient, kind: str, about: ObjectMeta) -> ClusterView:
    """All that an explanation weighs, with the Events of the explained object.

    Raises:
        KubeError: Slices, claims or classes cannot be read; without them there is no answer.
    """
    devices, _ = await read_devices(client)
    classes = await _all(client, DeviceClass)
    doubts: list[Said] = [*devices.doubts, *unread(DeviceClass, classes)]
    nodes = await _if_allowed(client, FullNode, doubts, "labels, taints and resources of nodes")
    pods = await _if_allowed(
        client, Pod, doubts, "what other pods use of resources", field_selector=_RUNNING
    )
    events = await events_about(client, kind, about, doubts)
    admin_access_allowed = await _admin_access_allowed(client, about, devices.claims, doubts)
    minor = await client.minor_version()
    return ClusterView(
        slices=devices.slices,
        claims=devices.claims,
        classes={one.metadata.name: one for one in classes.objects},
        nodes=nodes,
        pods=pods,
        events=events,
        doubts=tuple(doubts),
        admin_access_allowed=admin_access_allowed,
        minor=minor,
    )


async def events_about(
    client: KubeClient, kind: str, about: ObjectMeta, doubts: list[Said]
) -> tuple[Event, ...]:
    """The Events about an object of a kind; a missing right becomes a doubt."""
    selector = f"involvedObject.name={about.name},involvedObject.kind={kind}"
    events = await _if_allowed(
        client,
        Event,
        doubts,
        "Events",
        namespace=about.namespace or "default",
        field_selector=selector,
    )
    return events or ()


async def namespaces_of(client: KubeClient, kind: type[KubeObject], name: str) -> tuple[str, ...]:
    """The namespaces with an object of that name.

    Raises:
        KubeError: Refused or unreachable.
    """
    found = await client.list_all(kind, field_selector=f"metadata.name={name}", page=_PAGE)
    read = (one.metadata.namespace or "" for one in found.objects)
    return (*read, *(one.namespace for one in found.unread))


def unread(kind: type[K], found: Listed[K]) -> Iterator[Said]:
    """What follows from unreadable objects."""
    for one in found.unread[:_FEW]:
        looks = _LOOKS.get(kind, "it looks absent")
        yield Said(
            f"{kind.kind_name} {one.title} cannot be read, so {looks}: {one.why}",
            Doubt.UNREADABLE,
            kind=kind.kind_name,
            name=one.title,
            error=one.why,
        )
    if (count := len(found.unread) - _FEW) > 0:
        text = f"{count} more {kind.plural} that cannot be read"
        yield Said(text, Doubt.MORE_UNREADABLE, resource=kind.plural, count=count)


async def _all(client: KubeClient, kind: type[K]) -> Listed[K]:
    return await client.list_all(kind, page=_PAGES.get(kind, _PAGE))


async def _if_allowed(
    client: KubeClient,
    kind: type[K],
    doubts: list[Said],
    what: str,
    *,
    namespace: str | None = None,
    field_selector: str = "",
) -> tuple[K, ...] | None:
    """All objects of a kind; None if we may not read them."""
    try:
        found = await client.list_all(
            kind,
            namespace=namespace,
            field_selector=field_selector,
            page=_PAGES.get(kind, _PAGE),
        )
    except Forbidden:
        doubts.append(_may_not("list", kind, what))
        return None
    doubts += unread(kind, found)
    return found.objects


def _may_not(verb: str, kind: type[KubeObject], what: str) -> Said:
    text = f"{what}: you may not {verb} {kind.plural}"
    return Said(text, Doubt.FORBIDDEN, verb=verb, resource=kind.plural)


async def _admin_access_allowed(
    client: KubeClient, about: ObjectMeta, claims: Iterable[Claim], doubts: list[Said]
) -> bool | None:
    """Whether a namespace lets its claims look on; asked only if one of them wants to."""
    name = about.namespace or "default"
    if not any(one.metadata.namespace == name and one.wants_admin_access for one in claims):
        return None
    try:
        namespace = await client.get(Namespace, name)
    except Forbidden:
        doubts.append(_may_not("get", Namespace, f"whether namespace {name} may have admin access"))
        return None
    return namespace.metadata.labels.get(ADMIN_LABEL) == "true"


async def _taint_rules(client: KubeClient, doubts: list[Said]) -> tuple[DeviceTaintRule, ...]:
    """The rules that taint devices beside their slices; older API servers serve none of them."""
    try:
        rules = await _if_allowed(client, DeviceTaintRule, doubts, "DeviceTaintRules")
    except KubeError as error:
        if error.status == 404:
            return ()
        raise
    return rules or ()
