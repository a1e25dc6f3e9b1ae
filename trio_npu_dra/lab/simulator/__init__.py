"""A simulated Ascend board with the vendor's real ABI, for workstations, demos and tests.

`create_board` lays out a folder that looks like a host with an Ascend driver: `libdcmi.so`,
`npu-smi`, device nodes and sysfs. `BoardControl` changes the board while others use
it.
"""

from trio_npu_dra.lab.simulator.board import SimulatedBoard, create_board
from trio_npu_dra.lab.simulator.build import compile_simulator
from trio_npu_dra.lab.simulator.control import BoardControl, Presence
from trio_npu_dra.lab.simulator.fault_control import Assertion, Severity
from trio_npu_dra.lab.simulator.profile import Profile, load_profile, of_server, profile_names
from trio_npu_dra.lab.simulator.rule_control import ANY_FUNCTION, simulated_functions

__all__ = [
    "ANY_FUNCTION",
    "Assertion",
    "BoardControl",
    "Presence",
    "Profile",
    "Severity",
    "SimulatedBoard",
    "compile_simulator",
    "create_board",
    "load_profile",
    "of_server",
    "profile_names",
    "simulated_functions",
]
