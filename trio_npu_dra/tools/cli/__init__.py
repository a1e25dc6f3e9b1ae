"""The commands of this package, one module each, and what they print.

They know flags and forms of output; what they print is found out by `cluster`, `doctor`,
`ranktable` and the agent. The program `npu-dra` imports a command's module when it is asked for.
"""

__all__ = ["doctor", "health", "inspect", "kubectl_npu", "ranktable"]
