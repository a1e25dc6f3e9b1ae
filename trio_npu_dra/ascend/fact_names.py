"""Under which names facts of NPUs are published: attributes and capacities of their devices.

Whoever publishes a fact and whoever reads it from ResourceSlices take its name from here.
docs/reference/attributes.md says what each means.
"""

from __future__ import annotations

from typing import Final

# --- attributes ----------------------------------------------------------------------------------

TYPE: Final = "type"
MODEL: Final = "model"
CHIP_NAME: Final = "chipName"
PRODUCT_NAME: Final = "productName"
NPU_NAME: Final = "npuName"
UUID: Final = "uuid"
PARENT_UUID: Final = "parentUUID"
TEMPLATE: Final = "template"
TOPOLOGY_GROUP: Final = "topologyGroup"
MODULE: Final = "module"
MULTI_DIE_POLICY: Final = "multiDiePolicy"
PHYSICAL_ID: Final = "physicalId"
LOGIC_ID: Final = "logicId"
CARD_ID: Final = "cardId"
DEVICE_ID: Final = "deviceId"
NUMA_NODE: Final = "numaNode"
SUPER_POD_ID: Final = "superPodId"
SUPER_POD_SERVER_INDEX: Final = "superPodServerIndex"
SUPER_POD_SDID: Final = "superPodSdid"
DEVICE_SHARE: Final = "deviceShare"
DRIVER_VERSION: Final = "driverVersion"

# Those that Kubernetes gives a meaning for all drivers.
STANDARD_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
STANDARD_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
STANDARD_PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"

# --- capacities ----------------------------------------------------------------------------------

AI_CORES: Final = "aiCores"
AI_CPUS: Final = "aiCpus"
MEMORY: Final = "memCapacity"
SHARES: Final = "shares"
