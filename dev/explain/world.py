"""API objects of a small cluster, in their wire form, and the view that is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from trio_npu_dra.kit.api.events import Event
from trio_npu_dra.kit.api.objects import FullNode, KubeObject
from trio_npu_dra.tools.cluster.inventory import ClusterView, with_rules
from trio_npu_dra.tools.cluster.objects import AnySlice, Claim, DeviceClass, DeviceTaintRule, Pod

Wire = dict[str, Any]
K = TypeVar("K", bound=KubeObject)

DRIVER = "npu.huawei.com"
RESOURCE = "resource.k8s.io/v1"


def node(name: str, *, allocatable: Wire | None = None, **spec: Any) -> Wire:
    """A Node; *spec* may have `labels` too."""
    labels = spec.pop("labels", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "pods": "110", **(allocatable or {})}},
    }


def attribute(value: str | int | bool) -> Wire:
    """An attribute; a string with a `v` before a digit is a version."""
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    if value[:1] == "v" and value[1:2].isdigit():
        return {"version": value[1:]}
    return {"string": value}


def device(
    name: str,
    attributes: Mapping[str, str | int | bool] | None = None,
    capacity: Mapping[str, str | Wire] | None = None,
    **more: Any,
) -> Wire:
    """A device of a slice."""
    made: Wire = {"name": name, **more}
    if attributes:
        made["attributes"] = {key: attribute(value) for key, value in attributes.items()}
    if capacity:
        made["capacity"] = {
            key: {"value": one} if isinstance(one, str) else one for key, one in capacity.items()
        }
    return made


def slice_(
    name: str,
    *devices: Wire,
    node: str = "n1",
    driver: str = DRIVER,
    count: int = 1,
    generation: int = 1,
    pool: str = "",
    **spec: Any,
) -> Wire:
    """A ResourceSlice of the pool of a node."""
    place = {"nodeName": node} if node else {}
    content: Wire = {"devices": list(devices)} if devices else {}
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {
                "name": pool or node,
                "generation": generation,
                "resourceSliceCount": count,
            },
            **place,
            **content,
            **spec,
        },
    }


def taint_rule(taint: Wire, **selector: str) -> Wire:
    """A DeviceTaintRule for the devices with those names: `driver`, `pool`, `device`."""
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceTaintRule",
        "metadata": {"name": "drain"},
        "spec": {"deviceSelector": selector, "taint": dict(taint)},
    }


def class_(name: str = DRIVER, *expressions: str, **spec: Any) -> Wire:
    """A DeviceClass; without expressions, of all devices of the driver."""
    wanted = expressions or (f"device.driver == '{DRIVER}'",)
    return {
        "apiVersion": RESOURCE,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [cel(one) for one in wanted], **spec},
    }


def cel(expression: str) -> Wire:
    """A selector."""
    return {"cel": {"expression": expression}}


def ask(*expressions: str, class_name: str = DRIVER, **more: Any) -> Wire:
    """What a request asks for, without its name."""
    made: Wire = {"deviceClassName": class_name, **more}
    if expressions:
        made["selectors"] = [cel(one) for one in expressions]
    return made


def claim(name: str, *requests: Wire, constraints: Iterable[Wire] = (), **metadata: Any) -> Wire:
    """A ResourceClaim; a request is `{"name": ..., "exactly": ...}`, or an ask for one `npu`."""
    full = [one if "name" in one else {"name": "npu", "exactly": one} for one in requests]
    devices: Wire = {"requests": full}
    if constraints:
        devices["constraints"] = list(constraints)
    return {
        "apiVersion": RESOURCE,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
        "spec": {"devices": devices},
    }


def allocated(made: Wire, *devices: str, node: str = "n1", users: Iterable[str] = ()) -> Wire:
    """A claim that has those devices of a node, for its first request."""
    request = made["spec"]["devices"]["requests"][0]["name"]
    results = [
        {"request": request, "driver": DRIVER, "pool": node, "device": name} for name in devices
    ]
    return with_results(made, results, node=node, users=users)


def with_results(
    made: Wire, results: list[Wire], *, node: str = "n1", users: Iterable[str] = ()
) -> Wire:
    """A claim that has these results, and users by name."""
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        **made,
        "status": {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            },
            "reservedFor": [
                {"resource": "pods", "name": user, "uid": f"uid-{user}"} for user in users
            ],
        },
    }


def pod(name: str, *claims: str, **spec: Any) -> Wire:
    """A Pod that uses claims by their names; *spec* may have `status` too."""
    status = spec.pop("status", {"phase": "Pending"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {
            "containers": [{"name": "main", "image": "none.invalid/none"}],
            "resourceClaims": [
                {"name": f"claim-{at}", "resourceClaimName": one} for at, one in enumerate(claims)
            ],
            **spec,
        },
        "status": status,
    }


def view_of(*objects: Wire, **more: Any) -> ClusterView:
    """The view of a cluster that has just these objects."""

    def all_of(kind: type[K]) -> tuple[K, ...]:
        return tuple(kind.model_validate(one) for one in objects if one["kind"] == kind.kind_name)

    return ClusterView(
        slices=with_rules(all_of(AnySlice), all_of(DeviceTaintRule)),
        claims=all_of(Claim),
        classes={one.metadata.name: one for one in all_of(DeviceClass)},
        nodes=all_of(FullNode),
        pods=all_of(Pod),
        events=all_of(Event),
        **more,
    )
