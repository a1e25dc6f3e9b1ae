"""What runs on a node: from chips and claims to ResourceSlices, CDI files and reports.

It knows neither the tools for people nor the simulator. It lists its packages and
imports none, because a command needs few of them.
"""

__all__ = [
    "claims",
    "cli",
    "config",
    "control",
    "daemon",
    "device_plugin",
    "devices",
    "flags",
    "handout",
    "holds",
    "observe",
    "report",
    "settings",
]
