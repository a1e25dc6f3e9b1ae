"""libdcmi.so, the vendor's device management library: the only place that knows ctypes."""
