"""Chips, and parts of them, as devices of device plugin resources, beside the node's DRA pool.

A *resource* is what a device plugin registers, such as `huawei.com/Ascend910`. Its devices are
chips, each by its physical id: the dies of an A3 card too, because that is what manifests written
for Huawei's device plugin count. Or they are shares of chips, or vNPUs created manually.

This package knows neither gRPC nor the API server.
"""

__all__ = [
    "assignment",
    "cdi_file",
    "chooser",
    "device",
    "names",
    "node_plugins",
    "pods",
    "selection",
]
