"""Processes of one job, which know each other by their number alone."""

import os

from torch import Tensor


def init_process_group(backend: str) -> None:
    assert backend == "hccl"


def get_rank() -> int:
    return int(os.environ["RANK"])


def get_world_size() -> int:
    return int(os.environ["WORLD_SIZE"])


def all_reduce(tensor: Tensor) -> None:
    tensor.total *= get_world_size()


def destroy_process_group() -> None:
    pass
