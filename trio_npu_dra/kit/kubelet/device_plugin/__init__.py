"""The device plugin API, for any devices: what a plugin owes the kubelet, and who has its devices.

A plugin serves one resource, such as `vendor.com/device`, from a socket of its own in the kubelet's
folder of device plugins. Unlike a DRA driver it calls the kubelet to register, and again after each
start of the kubelet. Which pod has a device, and whether it has ended, is told by another API of
the kubelet (`pod_resources`), and only when it is asked.
"""
