"""`npu-dra demo` and `npu-dra simulate`."""
