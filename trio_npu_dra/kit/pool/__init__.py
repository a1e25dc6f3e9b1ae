"""A node's pool of devices at the API server, kept as it should be; it knows no NPU."""
