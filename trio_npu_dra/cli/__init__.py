"""The `npu-dra` command; one module a subcommand."""
