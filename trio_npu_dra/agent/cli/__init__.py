"""The program `npu-dra`, and its command `serve`, which the DaemonSet runs.

Commands are chosen here and imported when chosen; `main` knows none of them.
"""
