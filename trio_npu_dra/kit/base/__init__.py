"""Errors, files, locks, time, logs and values that tasks wait for: all other packages build on it.

They import its modules. It must not know devices, the kubelet or the API server.
"""

__all__ = [
    "boot",
    "cdi",
    "command_line",
    "device_metadata",
    "disk",
    "errors",
    "file_lock",
    "health",
    "log_thread",
    "logs",
    "observable",
    "pace",
    "signals",
    "storage",
    "terminal",
    "watchdog",
]
