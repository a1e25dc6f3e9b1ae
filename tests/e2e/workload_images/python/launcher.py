"""Starts a process for each NPU, as torchrun and msrun do."""

import os
import subprocess
import sys
from pathlib import Path


def start(count: int, script: str, folder: Path | None = None) -> int:
    """Run the script with a number in each of *count* processes; returns the worst status.

    Their output goes into a file each in *folder*.
    """
    processes = []
    for rank in range(count):
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count}
        environment = os.environ | {name: str(value) for name, value in ranks.items()}
        output = None if folder is None else (folder / f"worker_{rank}.log").open("w")
        command = [sys.executable, script]
        processes.append(subprocess.Popen(command, env=environment, stdout=output, stderr=output))
    return max(process.wait() for process in processes)
