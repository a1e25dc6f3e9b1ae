"""Writes what Volcano's Ascend plugin and MindCluster read of a node; reads Volcano's choices.

Without this room, Huawei's device plugin writes it. Names, forms and moments are that plugin's
(Ascend/mind-cluster, component/ascend-device-plugin); facts that our chips do not tell are left out
(docs/mindcluster.md). It knows neither claims nor the kubelet. Its face is a list of modules.
"""

__all__ = ["volcano", "writers"]
