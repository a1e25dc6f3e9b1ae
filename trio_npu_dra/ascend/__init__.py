"""The node's NPUs: their facts, their health, and what a container needs to use them.

It knows neither Kubernetes nor claims.
"""

__all__ = [
    "ascend_driver",
    "container",
    "dcmi",
    "division_poll",
    "fact_names",
    "fault_memory",
    "hccn_conf",
    "health",
    "host",
    "host_path",
    "listing",
    "model",
    "occupancy",
    "offers",
    "partition",
    "port_faults",
    "root_info",
    "share_flag",
    "single_look",
    "splits",
    "subscription",
    "telemetry",
    "topology",
    "traits",
    "unified_bus",
    "vnpus",
    "watcher",
]
