"""The control socket, on which `npu-dra health` asks the running daemon: both ends, and the report.

Only root may connect. It decides nothing about chips; probes and scrapes go to `observe`.
"""

__all__ = ["answers", "client", "report"]
