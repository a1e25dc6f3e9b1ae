"""`npu-dra demo`, `npu-dra simulate` and `npu-dra template`."""
