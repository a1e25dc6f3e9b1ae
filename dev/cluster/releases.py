"""The versions that the tests know: one row for each Kubernetes version.

A new row needs `kubernetes/<version>.mod` and `.sum`, and `containerd/<version>.mod`
and `.sum` if that version is new too. For Kubernetes start from a neighbour's file: change the
versions of k8s.io (its staging modules are replaced one by one) and of etcd's server to those that
this Kubernetes requires, and let `go mod tidy` do the rest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A Kubernetes version and the containerd that it is tested with.

    `gates` are the feature gates that tests need and that are off in this one, `apis` the groups
    that these gates serve; no other gate is switched.
    """

    kubernetes: str
    containerd: str
    gates: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()


DEFAULT = "1.36.3"

RELEASES = {
    release.kubernetes: release
    for release in (
        # The health of devices in a pod's status is alpha before 1.36.
        Release(kubernetes="1.34.3", containerd="1.7.29", gates=("ResourceHealthStatus=true",)),
        Release(kubernetes=DEFAULT, containerd="2.1.6"),
        Release(
            kubernetes="1.37.1",
            containerd="2.1.6",
            gates=("GenericWorkload=true", "TopologyAwareWorkloadScheduling=true"),
            apis=("scheduling.k8s.io/v1beta1",),
        ),
    )
}

BY_NEED = sorted(RELEASES.values(), key=lambda release: release.kubernetes != DEFAULT)
"""The default version first, which has the most tests."""
