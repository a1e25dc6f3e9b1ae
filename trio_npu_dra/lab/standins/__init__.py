"""An API server and a kubelet in this process, which pass the conformance tests of the real ones.

They share the wire with the driver, not its code. Others import from the modules below.
"""

__all__ = ["api_rules", "api_server", "api_state", "api_status", "device_manager", "kubelet"]
