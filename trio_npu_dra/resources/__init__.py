"""Chips as devices of device plugin resources, beside the DRA pool of the same node.

A *resource* is what a device plugin registers, such as `huawei.com/Ascend910`. Its devices are
chips, each by its physical id: the dies of an A3 card too, because that is what manifests written
for Huawei's device plugin count.
"""
