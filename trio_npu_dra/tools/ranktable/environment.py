"""What the launcher of one pod's processes must know of the job, as variables (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from trio_npu_dra.tools.ranktable.members import Member


class Framework(StrEnum):
    """Whose variables they are."""

    PYTORCH = "pytorch"
    MINDSPORE = "mindspore"


def variables(members: Sequence[Member], own: Member, framework: Framework) -> dict[str, str]:
    """The variables for the pod *own*: those of torchrun, or of MindSpore's msrun.

    The first pod is the master. The ports are the usual ones of both.
    """
    master = members[0].address
    nodes, rank, local = len(members), members.index(own), len(own.npus)
    world = sum(len(member.npus) for member in members)
    if framework is Framework.MINDSPORE:
        found = {
            "MS_SCHED_HOST": master,
            "MS_SCHED_PORT": 8118,
            "MS_WORKER_NUM": world,
            "MS_LOCAL_WORKER": local,
            "MS_NODE_RANK": rank,
        }
    else:
        found = {
            "MASTER_ADDR": master,
            "MASTER_PORT": 29500,
            "NNODES": nodes,
            "NODE_RANK": rank,
            "NPROC_PER_NODE": local,
            "WORLD_SIZE": world,
        }
    return {name: str(value) for name, value in found.items()}
