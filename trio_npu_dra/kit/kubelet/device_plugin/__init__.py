"""The device plugin API, for any devices: a plugin's side of it, and the list of pods with devices.

A plugin serves one resource, such as `vendor.com/device`, from a socket of its own in the kubelet's
folder of device plugins. Unlike a DRA driver it calls the kubelet to register, and again after each
start of the kubelet. Another API of the kubelet (`pod_resources`) tells which pods have devices.
Other packages import from the modules below; `plugin` needs no gRPC.
"""

__all__ = ["plugin", "pod_resources", "registration"]
