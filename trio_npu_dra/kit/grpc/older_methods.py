"""The methods of older kubelets, whose messages are on the wire those of v1, as far as they know.

v1beta1 of DRAPlugin has no share id, v1alpha1 of DRAResourceHealth is equal to v1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trio_npu_dra.kit.grpc import methods

_DRA_V1BETA1 = "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"

NODE_PREPARE_RESOURCES_V1BETA1: Final = replace(
    methods.NODE_PREPARE_RESOURCES_V1, path=f"{_DRA_V1BETA1}/NodePrepareResources"
)
NODE_UNPREPARE_RESOURCES_V1BETA1: Final = replace(
    methods.NODE_UNPREPARE_RESOURCES_V1, path=f"{_DRA_V1BETA1}/NodeUnprepareResources"
)
NODE_WATCH_RESOURCES_V1ALPHA1: Final = replace(
    methods.NODE_WATCH_RESOURCES_V1, path="/v1alpha1.DRAResourceHealth/NodeWatchResources"
)
