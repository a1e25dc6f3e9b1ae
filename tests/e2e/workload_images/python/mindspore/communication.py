"""Processes of one job, which know each other by their number alone."""

import os

import cann


def init() -> None:
    assert get_rank() < cann.device_count()


def get_rank() -> int:
    return int(os.environ["RANK"])


def get_group_size() -> int:
    return int(os.environ["WORLD_SIZE"])
