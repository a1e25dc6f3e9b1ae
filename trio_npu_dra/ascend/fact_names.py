"""Under which names facts of NPUs are published, where more than one module needs the name.

`model.Chip` says which of its facts are attributes; docs/reference/attributes.md says what each
means. Names below `resource.kubernetes.io/` have a meaning for all drivers.
"""

from __future__ import annotations

from typing import Final

# --- attributes ----------------------------------------------------------------------------------

TYPE: Final = "type"
MODEL: Final = "model"
CHIP_NAME: Final = "chipName"
PRODUCT_NAME: Final = "productName"
NPU_NAME: Final = "npuName"
TEMPLATE: Final = "template"
PARENT_UUID: Final = "parentUUID"
TOPOLOGY_GROUP: Final = "topologyGroup"
MODULE: Final = "module"
PHYSICAL_ID: Final = "physicalId"
LOGIC_ID: Final = "logicId"
CARD_ID: Final = "cardId"
DEVICE_ID: Final = "deviceId"
NUMA_NODE: Final = "numaNode"
STANDARD_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
SUPER_POD_ID: Final = "superPodId"
SUPER_POD_SERVER_INDEX: Final = "superPodServerIndex"
MULTI_DIE_POLICY: Final = "multiDiePolicy"
DEVICE_SHARE: Final = "deviceShare"
DRIVER_VERSION: Final = "driverVersion"

# --- capacities ----------------------------------------------------------------------------------

AI_CORES: Final = "aiCores"
AI_CPUS: Final = "aiCpus"
MEMORY: Final = "memCapacity"
SHARES: Final = "shares"
