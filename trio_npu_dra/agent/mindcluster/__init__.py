"""What Volcano's Ascend plugin and MindCluster read of a node, and what Volcano writes on pods.

Huawei's device plugin writes it otherwise. Names, forms and moments are that plugin's (Ascend/
mind-cluster, component/ascend-device-plugin); what our chips do not tell is left out
(docs/mindcluster.md).
"""
