"""A node plugin's side of the kubelet: registration, claims, device health, probes, device plugins.

It serves any `Driver` and `DevicePlugin`, and knows neither hardware nor the API server. Other
packages import from the modules below; `driver` needs no gRPC.
"""

__all__ = [
    "device_health",
    "device_plugin",
    "driver",
    "endpoints",
    "plugin",
    "probes",
    "registration",
]
